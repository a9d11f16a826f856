//! [`Node`]: a device graph as data.

use zonda_config::{ConfigError, Spanned};
use zonda_raid::{Volume, VolumeConfig, VolumeDevice, VolumeError};
use zonda_sched::ZoneGroups;
use zonda_zoned::{Geometry, NamespaceId, PayloadKind, Prng, ZoneIndex, ZonedDevice};

use crate::Stack;
use crate::layer::{Layer, LayerSpec};
use crate::limits::LAYERS_MAX;

/// A device as data: a drive, a layer over a device, or a volume over devices. `L` describes a
/// drive: a profile, the path of an image, the address of a server. A [`Factory`] builds it.
#[derive(Clone, Debug)]
pub enum Node<L> {
    /// A drive.
    Drive(L),
    /// A layer over a device.
    Layer(Layer, Box<Node<L>>),
    /// A redundant volume.
    Volume(VolumeNode<L>),
}

/// A volume and its members.
#[derive(Clone, Debug)]
pub struct VolumeNode<L> {
    /// Scheme, layout and tuning.
    pub config: VolumeConfig,
    /// The members, in their order.
    pub members: Vec<Node<L>>,
}

/// Builds the drives of a graph.
pub trait Factory<L> {
    /// A drive.
    type Drive: ZonedDevice;
    /// Why a drive cannot be built or opened.
    type Error;

    /// Builds or opens a drive. All of its random numbers are from `prng`. Drives of a volume are
    /// built in the order of its members.
    ///
    /// # Errors
    /// Those of the drive; the graph is not built then.
    fn drive(&mut self, drive: &L, prng: &Prng) -> Result<Self::Drive, Self::Error>;

    /// Builds a volume on its members. By default a new one, which erases them.
    ///
    /// # Errors
    /// If a drive in place of a member cannot be built.
    ///
    /// # Panics
    /// If the volume was not checked against the geometries of its members.
    fn volume(
        &mut self,
        volume: &VolumeNode<L>,
        members: Vec<Stack<Self::Drive>>,
        prng: &Prng,
    ) -> Result<VolumeDevice<Stack<Self::Drive>>, Self::Error> {
        let _ = prng;
        let geometries = members.iter().map(|member| member.geometry(NamespaceId::FIRST).clone()).collect();
        let machine = volume.create(geometries).expect("the volume was checked against these geometries");
        Ok(VolumeDevice::new(machine, members.into_iter().map(Some).collect()))
    }

    /// The conflict groups of the zones of a device that will be built from `prng`, for a scheduler
    /// over it. By default none is known.
    ///
    /// # Errors
    /// If a drive that is needed to measure them cannot be built.
    fn groups(&mut self, device: &Node<L>, prng: &Prng) -> Result<ZoneGroups, Self::Error> {
        let _ = (device, prng);
        Ok(ZoneGroups::default())
    }

    /// The random numbers of a layer; `index` is the number of layers between it and the drive or
    /// volume below.
    fn layer_prng(&self, prng: &Prng, index: usize, layer: &Layer) -> Prng {
        let _ = layer;
        prng.fork(&format!("layer/{index}"))
    }
}

impl<L> Node<L> {
    /// This device below layers, the innermost first. Each layer is checked against the geometry
    /// below it, and `geometry`, at first that of this device, becomes that of the outermost one.
    ///
    /// # Errors
    /// The first error, with its position; or more than [`LAYERS_MAX`] layers over one device.
    pub fn with_layers(
        self,
        layers: &[Spanned<LayerSpec>],
        geometry: &mut Geometry,
        keeps: PayloadKind,
    ) -> Result<Node<L>, ConfigError> {
        let mut node = self;
        let over = node.layers().count();
        if let Some(excess) = layers.get(LAYERS_MAX - over) {
            let error = ConfigError::at(excess, format!("too many layers: {}", over + layers.len()));
            return Err(error.help(format!("at most {LAYERS_MAX} are allowed")));
        }
        for spec in layers {
            if let (Node::Volume(_), LayerSpec::Slice(_)) = (node.base(), spec.get_ref()) {
                let error = ConfigError::at(spec, "a slice needs zones, which a volume does not have");
                return Err(error.help("use slices over the drives, in [[drive.layer]], or set the size of the volume"));
            }
            let layer = LayerSpec::check(spec, geometry, keeps)?;
            if let (Node::Volume(_), true) = (node.base(), layer.uses_groups()) {
                let error = ConfigError::at(spec, "conflict groups need zones, which a volume does not have");
                return Err(error.help("schedule the drives of the volume, in [[drive.layer]]"));
            }
            *geometry = layer.geometry(geometry).expect("the layer was checked against this geometry");
            node = Node::Layer(layer, Box::new(node));
        }
        Ok(node)
    }

    /// Builds the device and everything below it. Layers take their random numbers from
    /// `layer/INDEX` of `prng`, members of a volume all of theirs from `member/INDEX`.
    ///
    /// # Errors
    /// Those of the factory.
    ///
    /// # Panics
    /// If a layer or a volume does not fit on the devices below it.
    pub fn build<F: Factory<L>>(&self, factory: &mut F, prng: &Prng) -> Result<Stack<F::Drive>, F::Error> {
        match self {
            Node::Drive(drive) => Ok(Stack::Drive(Box::new(factory.drive(drive, prng)?))),
            Node::Layer(layer, below) => {
                let groups = match layer.uses_groups() {
                    true => factory.groups(below, prng)?,
                    false => ZoneGroups::default(),
                };
                let device = below.build(factory, prng)?;
                Ok(layer.over(device, factory.layer_prng(prng, below.layers().count(), layer), groups))
            }
            Node::Volume(volume) => {
                let members = (0..volume.members.len()).map(|member| volume.build_member(member, factory, prng));
                let members = members.collect::<Result<Vec<_>, _>>()?;
                Ok(Stack::Volume(Box::new(factory.volume(volume, members, prng)?)))
            }
        }
    }

    /// The layers over the drive or volume, the outermost first.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        let mut node = self;
        std::iter::from_fn(move || {
            let Node::Layer(layer, below) = node else { return None };
            node = below;
            Some(layer)
        })
    }

    /// The drive or volume below the layers.
    pub fn base(&self) -> &Node<L> {
        let mut node = self;
        while let Node::Layer(_, below) = node {
            node = below;
        }
        node
    }

    /// The zone of the drive below the layers for a zone of the outermost one.
    pub fn zone_of_drive(&self, zone: ZoneIndex) -> ZoneIndex {
        let slices = self.layers().filter_map(Layer::slice);
        ZoneIndex(zone.0 + slices.map(|slice| slice.first.0).sum::<u32>())
    }
}

impl<L> VolumeNode<L> {
    /// A new volume on members of these geometries, which it erases.
    ///
    /// # Errors
    /// If configuration and members do not suit each other.
    pub fn create(&self, geometries: Vec<Geometry>) -> Result<Volume, VolumeError> {
        let ids: Vec<[u8; 16]> = (0..geometries.len() as u8).map(|member| [member + 1; 16]).collect();
        Volume::create(self.config.clone(), geometries, [7; 16], &ids, true)
    }

    /// A member of the volume that is built with `prng`.
    ///
    /// # Errors
    /// Those of the factory.
    ///
    /// # Panics
    /// As [`Node::build`].
    pub fn build_member<F: Factory<L>>(
        &self,
        member: usize,
        factory: &mut F,
        prng: &Prng,
    ) -> Result<Stack<F::Drive>, F::Error> {
        self.members[member].build(factory, &prng.fork(&format!("member/{member}")))
    }
}

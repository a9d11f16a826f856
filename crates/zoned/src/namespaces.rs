//! [`Namespaces`]: what a device has, and since when.

use crate::{Geometry, NamespaceId};

/// The namespaces of a device, in the order of their identifiers.
///
/// A device's owner may add, remove and resize namespaces while commands are in flight. Each of
/// these raises [`version`](Namespaces::version), so that whoever keeps a geometry can tell with
/// one comparison whether to read it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespaces {
    version: u64,
    list: Vec<(NamespaceId, Geometry)>,
}

impl Namespaces {
    /// No namespace yet.
    #[must_use]
    pub fn none() -> Namespaces {
        Namespaces { version: 0, list: Vec::new() }
    }

    /// The single namespace of a device that has no more, [`NamespaceId::FIRST`].
    #[must_use]
    pub fn single(geometry: Geometry) -> Namespaces {
        Namespaces { version: 0, list: vec![(NamespaceId::FIRST, geometry)] }
    }

    /// The geometry of a namespace; `None` if the device does not have it.
    #[inline]
    #[must_use]
    pub fn geometry(&self, namespace: NamespaceId) -> Option<&Geometry> {
        // Most devices have one namespace, and a list of a few is searched faster than a map.
        self.list.iter().find(|(id, _)| *id == namespace).map(|(_, geometry)| geometry)
    }

    /// The namespaces, by ascending identifier.
    pub fn iter(&self) -> impl Iterator<Item = (NamespaceId, &Geometry)> {
        self.list.iter().map(|(id, geometry)| (*id, geometry))
    }

    /// The number of changes so far.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Adds a namespace.
    ///
    /// # Panics
    /// If the device has it already: the caller chooses identifiers.
    pub fn add(&mut self, namespace: NamespaceId, geometry: Geometry) {
        let place = self.list.binary_search_by_key(&namespace, |(id, _)| *id);
        let place = place.expect_err("a namespace is added once");
        self.list.insert(place, (namespace, geometry));
        self.version += 1;
    }

    /// Removes a namespace, and returns its last geometry; `None` if the device does not have it.
    pub fn remove(&mut self, namespace: NamespaceId) -> Option<Geometry> {
        let place = self.list.binary_search_by_key(&namespace, |(id, _)| *id).ok()?;
        self.version += 1;
        Some(self.list.remove(place).1)
    }

    /// Replaces the geometry of a namespace, for example by one of more zones.
    ///
    /// # Panics
    /// If the device does not have it, or blocks or zones would change their size: hosts would
    /// address other data with the same numbers.
    pub fn resize(&mut self, namespace: NamespaceId, geometry: Geometry) {
        let found = self.list.iter_mut().find(|(id, _)| *id == namespace);
        let (_, old) = found.expect("a namespace that is resized exists");
        assert!(
            old.block_size_bytes == geometry.block_size_bytes
                && old.metadata_bytes == geometry.metadata_bytes
                && old.zone_size_blocks == geometry.zone_size_blocks,
            "a namespace keeps the sizes of its blocks and zones while it exists"
        );
        if *old != geometry {
            *old = geometry;
            self.version += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Blocks;

    fn of_zones(zone_count: u32) -> Geometry {
        Geometry { zone_count, ..Geometry::tiny() }
    }

    #[test]
    fn each_change_raises_the_version_and_nothing_else_does() {
        let mut namespaces = Namespaces::none();
        let mut versions = vec![namespaces.version()];
        namespaces.add(NamespaceId(3), of_zones(3));
        versions.push(namespaces.version());
        namespaces.add(NamespaceId(1), of_zones(1));
        versions.push(namespaces.version());
        namespaces.resize(NamespaceId(3), of_zones(4));
        versions.push(namespaces.version());
        assert_eq!(namespaces.remove(NamespaceId(1)), Some(of_zones(1)));
        versions.push(namespaces.version());
        assert_eq!(versions, [0, 1, 2, 3, 4]);
        namespaces.resize(NamespaceId(3), of_zones(4));
        assert_eq!(namespaces.remove(NamespaceId(1)), None);
        assert_eq!(namespaces.version(), 4, "nothing has changed");
    }

    #[test]
    fn namespaces_are_in_the_order_of_their_identifiers_and_others_are_absent() {
        let mut namespaces = Namespaces::none();
        for id in [5, 1, 3] {
            namespaces.add(NamespaceId(id), of_zones(id));
        }
        let ids: Vec<_> = namespaces.iter().map(|(id, geometry)| (id.0, geometry.zone_count)).collect();
        assert_eq!(ids, [(1, 1), (3, 3), (5, 5)]);
        assert_eq!(namespaces.geometry(NamespaceId(2)), None);
        assert_eq!(Namespaces::single(of_zones(8)).geometry(NamespaceId::FIRST), Some(&of_zones(8)));
    }

    #[test]
    #[should_panic(expected = "keeps the sizes")]
    fn zones_of_another_size_are_another_namespace() {
        let mut namespaces = Namespaces::single(Geometry::tiny());
        namespaces.resize(NamespaceId::FIRST, Geometry { zone_size_blocks: Blocks(32), ..Geometry::tiny() });
    }
}

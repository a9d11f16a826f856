//! Zone maps of drives: a cell for each zone, or for several zones of a large drive.

use serde::{Deserialize, Serialize};
use zonda_devices::{Drive, PoolDrive, PoolZone, ZoneRole};
use zonda_zoned::{Blocks, Geometry, NamespaceId, ZoneState};

/// Cells of a map, at most: a map of a drive of any size takes a few kilobytes.
pub const ZONE_MAP_CELLS_MAX: u32 = 4096;

/// The zones of a drive at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneMapSnapshot {
    /// The number of the member, of a redundant volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<u8>,
    /// Zones of the drive.
    pub zones: u32,
    /// Zones of a cell; the last one may have fewer.
    pub zones_per_cell: u32,
    /// The state of each cell, as a letter ([`CellState::letter`]): the most important of its zones.
    pub states: String,
    /// How much of the capacity of each cell is written, as a digit from 0 to 8: 0 is nothing, 8 more
    /// than seven eighths.
    pub fill: String,
    /// For each cell of the drive of a pool, the identifier of a namespace that has a zone of it, or 0.
    /// Empty for other drives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<u32>,
}

/// The state of a zone in a map, the most important first: a cell of several zones has the first that
/// occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellState {
    /// Offline.
    Offline,
    /// Read only.
    ReadOnly,
    /// Not used by the pool: it has failed, or holds something that is not the pool's.
    Unusable,
    /// Explicitly opened.
    ExplicitlyOpened,
    /// Implicitly opened.
    ImplicitlyOpened,
    /// Closed.
    Closed,
    /// In a stripe group, in an unknown state: the drive is a namespace of another server.
    InGroup,
    /// Full.
    Full,
    /// Of the log of the pool.
    Log,
    /// Being reset by the pool.
    Resetting,
    /// Reserved by the pool for the next stripe groups.
    Reserved,
    /// Conventional: it has no write pointer.
    Conventional,
    /// Empty.
    Empty,
}

impl CellState {
    /// All states, the most important first.
    pub const ALL: [CellState; 13] = [
        CellState::Offline,
        CellState::ReadOnly,
        CellState::Unusable,
        CellState::ExplicitlyOpened,
        CellState::ImplicitlyOpened,
        CellState::Closed,
        CellState::InGroup,
        CellState::Full,
        CellState::Log,
        CellState::Resetting,
        CellState::Reserved,
        CellState::Conventional,
        CellState::Empty,
    ];

    /// Its letter in [`ZoneMapSnapshot::states`].
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            CellState::Offline => 'o',
            CellState::ReadOnly => 'r',
            CellState::Unusable => 'u',
            CellState::ExplicitlyOpened => 'x',
            CellState::ImplicitlyOpened => 'i',
            CellState::Closed => 'c',
            CellState::InGroup => 'g',
            CellState::Full => 'f',
            CellState::Log => 'l',
            CellState::Resetting => 't',
            CellState::Reserved => 'v',
            CellState::Conventional => 'n',
            CellState::Empty => 'e',
        }
    }

    /// The state of this letter.
    #[must_use]
    pub fn of_letter(letter: char) -> Option<CellState> {
        CellState::ALL.into_iter().find(|state| state.letter() == letter)
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            CellState::Offline => "offline",
            CellState::ReadOnly => "read only",
            CellState::Unusable => "unusable",
            CellState::ExplicitlyOpened => "explicitly opened",
            CellState::ImplicitlyOpened => "implicitly opened",
            CellState::Closed => "closed",
            CellState::InGroup => "in a group",
            CellState::Full => "full",
            CellState::Log => "log",
            CellState::Resetting => "resetting",
            CellState::Reserved => "reserved",
            CellState::Conventional => "conventional",
            CellState::Empty => "empty",
        }
    }

    fn of(state: ZoneState) -> CellState {
        match state {
            ZoneState::Empty => CellState::Empty,
            ZoneState::ImplicitlyOpened => CellState::ImplicitlyOpened,
            ZoneState::ExplicitlyOpened => CellState::ExplicitlyOpened,
            ZoneState::Closed => CellState::Closed,
            ZoneState::ReadOnly => CellState::ReadOnly,
            ZoneState::Full => CellState::Full,
            ZoneState::Offline => CellState::Offline,
            ZoneState::NotWritePointer => CellState::Conventional,
        }
    }

    /// Of a zone of a pool: its role, unless it is in a group or the drive has taken it away.
    fn of_pool(zone: &PoolZone) -> CellState {
        let of_drive = zone.state.map(|(state, _)| CellState::of(state));
        match (zone.role, of_drive) {
            (_, Some(lost @ (CellState::Offline | CellState::ReadOnly))) => lost,
            (ZoneRole::Free, _) => CellState::Empty,
            (ZoneRole::Reserved, _) => CellState::Reserved,
            (ZoneRole::Group(_), of_drive) => of_drive.unwrap_or(CellState::InGroup),
            (ZoneRole::Resetting, _) => CellState::Resetting,
            (ZoneRole::Log, _) => CellState::Log,
            (ZoneRole::Unusable, _) => CellState::Unusable,
        }
    }
}

impl ZoneMapSnapshot {
    /// The map of a drive; `None` for one that does not report its zones.
    pub(crate) fn of_drive(drive: &dyn Drive) -> Option<ZoneMapSnapshot> {
        let mut builder = Builder::new(drive.geometry(NamespaceId::FIRST));
        drive.visit_zones(&mut |state, written| builder.add(CellState::of(state), written, 0));
        builder.finish(false)
    }

    /// The map of the drive of a pool.
    pub(crate) fn of_pool(pool: &PoolDrive) -> Option<ZoneMapSnapshot> {
        let mut builder = Builder::new(&pool.drive_geometry());
        for zone in pool.zones() {
            let owner = if let ZoneRole::Group(namespace) = zone.role { namespace.0 } else { 0 };
            builder.add(CellState::of_pool(&zone), zone.state.map_or(Blocks(0), |(_, written)| written), owner);
        }
        builder.finish(true)
    }

    /// Its cells: the state, the fill from 0 to 8, and the owner. Letters that are unknown are left out.
    pub fn cells(&self) -> impl Iterator<Item = (CellState, u32, u32)> {
        let owners = self.owners.iter().copied().chain(std::iter::repeat(0));
        let cells = self.states.chars().zip(self.fill.chars()).zip(owners);
        cells.filter_map(|((state, fill), owner)| Some((CellState::of_letter(state)?, fill.to_digit(10)?, owner)))
    }
}

/// Merges zones to cells.
struct Builder {
    zones: u32,
    zones_per_cell: u32,
    zone_capacity_blocks: u64,
    cells: Vec<Cell>,
}

struct Cell {
    state: CellState,
    zones: u32,
    written_blocks: u64,
    owner: u32,
}

impl Builder {
    fn new(geometry: &Geometry) -> Builder {
        Builder {
            zones: 0,
            zones_per_cell: geometry.zone_count.div_ceil(ZONE_MAP_CELLS_MAX).next_power_of_two(),
            zone_capacity_blocks: geometry.zone_capacity_blocks.0,
            cells: Vec::new(),
        }
    }

    fn add(&mut self, state: CellState, written: Blocks, owner: u32) {
        let Blocks(written) = written;
        match self.cells.last_mut() {
            Some(cell) if cell.zones < self.zones_per_cell => {
                cell.state = cell.state.min(state);
                cell.zones += 1;
                cell.written_blocks += written;
                cell.owner = if cell.owner == 0 { owner } else { cell.owner };
            }
            _ => self.cells.push(Cell { state, zones: 1, written_blocks: written, owner }),
        }
        self.zones += 1;
    }

    fn finish(self, has_owners: bool) -> Option<ZoneMapSnapshot> {
        let fill = |cell: &Cell| {
            let capacity = self.zone_capacity_blocks * u64::from(cell.zones);
            let eighths = (cell.written_blocks * 8).div_ceil(capacity.max(1)).min(8);
            char::from_digit(eighths as u32, 10).expect("it is at most 8")
        };
        (self.zones > 0).then(|| ZoneMapSnapshot {
            member: None,
            zones: self.zones,
            zones_per_cell: self.zones_per_cell,
            states: self.cells.iter().map(|cell| cell.state.letter()).collect(),
            fill: self.cells.iter().map(fill).collect(),
            owners: if has_owners { self.cells.iter().map(|cell| cell.owner).collect() } else { Vec::new() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(zone_count: u32) -> Geometry {
        Geometry { zone_count, zone_capacity_blocks: Blocks(16), ..Geometry::tiny() }
    }

    #[test]
    fn each_state_has_a_letter_of_its_own() {
        for state in CellState::ALL {
            assert_eq!(CellState::of_letter(state.letter()), Some(state));
        }
        assert!(CellState::ALL.is_sorted(), "the most important first");
        assert_eq!(CellState::of_letter('?'), None);
    }

    #[test]
    fn a_cell_has_the_state_and_the_fill_of_its_zone() {
        let mut builder = Builder::new(&geometry(5));
        let zones = [(CellState::Full, 16, 2), (CellState::Closed, 1, 1), (CellState::Closed, 8, 1)];
        zones.into_iter().for_each(|(state, written, owner)| builder.add(state, Blocks(written), owner));
        builder.add(CellState::Empty, Blocks(0), 0);
        let map = builder.finish(true).expect("it has zones");
        assert_eq!((map.states.as_str(), map.fill.as_str()), ("fcce", "8140"));
        assert_eq!((map.zones, map.zones_per_cell, map.owners.as_slice()), (4, 1, &[2, 1, 1, 0][..]));
        assert_eq!(map.cells().nth(1), Some((CellState::Closed, 1, 1)));
        assert_eq!(Builder::new(&geometry(5)).finish(true), None, "a drive that reports no zones has no map");
    }

    #[test]
    fn zones_of_a_large_drive_share_cells_which_show_the_most_important_state() {
        let mut builder = Builder::new(&geometry(40_704));
        for zone in 0..40_704 {
            let state = if zone == 17 { CellState::ImplicitlyOpened } else { CellState::Full };
            builder.add(state, Blocks(if zone < 32 { 8 } else { 16 }), zone / 16);
        }
        let map = builder.finish(false).expect("it has zones");
        assert_eq!((map.zones, map.zones_per_cell, map.states.len()), (40_704, 16, 2544));
        assert_eq!((&map.states[..3], &map.fill[..3], map.owners.len()), ("fif", "448", 0));
    }
}

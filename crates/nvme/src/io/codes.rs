//! Codes of the zone management commands (ZNS Command Set 1.1, sections 3.4.2 and 3.4.3).

use zonda_zoned::{ReportFilter, ZoneAction, ZoneState};

/// Zone Send Action (ZNS Command Set 1.1, Figure 47).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SendAction {
    /// 01h.
    Close = 0x01,
    /// 02h.
    Finish = 0x02,
    /// 03h.
    Open = 0x03,
    /// 04h.
    Reset = 0x04,
    /// 05h.
    Offline = 0x05,
    /// 10h.
    SetDescriptorExtension = 0x10,
    /// 11h.
    FlushZrwa = 0x11,
}

/// Zone Receive Action (ZNS Command Set 1.1, Figure 32).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReceiveAction {
    /// 00h: Report Zones.
    Report = 0x00,
    /// 01h: Extended Report Zones.
    ExtendedReport = 0x01,
}

impl SendAction {
    /// The code of an action.
    #[must_use]
    pub fn of(action: &ZoneAction) -> SendAction {
        match action {
            ZoneAction::Close => SendAction::Close,
            ZoneAction::Finish => SendAction::Finish,
            ZoneAction::Open { .. } => SendAction::Open,
            ZoneAction::Reset => SendAction::Reset,
            ZoneAction::Offline => SendAction::Offline,
            ZoneAction::SetDescriptorExtension { .. } => SendAction::SetDescriptorExtension,
            ZoneAction::FlushZrwa => SendAction::FlushZrwa,
        }
    }
}

impl TryFrom<u8> for SendAction {
    type Error = u8;

    /// Gives an unknown code back.
    fn try_from(code: u8) -> Result<SendAction, u8> {
        Ok(match code {
            0x01 => SendAction::Close,
            0x02 => SendAction::Finish,
            0x03 => SendAction::Open,
            0x04 => SendAction::Reset,
            0x05 => SendAction::Offline,
            0x10 => SendAction::SetDescriptorExtension,
            0x11 => SendAction::FlushZrwa,
            _ => return Err(code),
        })
    }
}

impl TryFrom<u8> for ReceiveAction {
    type Error = u8;

    /// Gives an unknown code back.
    fn try_from(code: u8) -> Result<ReceiveAction, u8> {
        match code {
            0x00 => Ok(ReceiveAction::Report),
            0x01 => Ok(ReceiveAction::ExtendedReport),
            _ => Err(code),
        }
    }
}

/// The filter with a code (ZRASF).
#[must_use]
pub fn report_filter(code: u8) -> Option<ReportFilter> {
    FILTERS.get(usize::from(code)).copied()
}

/// The code of a filter; `None` for a state without a code in the specification.
#[must_use]
pub fn report_filter_code(filter: ReportFilter) -> Option<u8> {
    FILTERS.iter().position(|&known| known == filter).map(|code| code as u8)
}

/// ZRASF, by code (ZNS Command Set 1.1, Figure 33).
const FILTERS: [ReportFilter; 8] = [
    ReportFilter::All,
    ReportFilter::State(ZoneState::Empty),
    ReportFilter::State(ZoneState::ImplicitlyOpened),
    ReportFilter::State(ZoneState::ExplicitlyOpened),
    ReportFilter::State(ZoneState::Closed),
    ReportFilter::State(ZoneState::Full),
    ReportFilter::State(ZoneState::ReadOnly),
    ReportFilter::State(ZoneState::Offline),
];

//! Appends a block to the first empty zone of a namespace, and reads it back.

use std::process::ExitCode;

use zonda_devices::{Connection, Location, NamespaceOptions};
use zonda_zoned::{BlockBuffer, Blocks, Lba, Operation, Outcome, Payload, ReportFilter, ZoneState};

fn main() -> ExitCode {
    let Some(location) = std::env::args().nth(1) else {
        eprintln!("usage: embed DIR | nvme-tcp://HOST:PORT/NQN");
        return ExitCode::from(2);
    };
    match append_and_read(&location) {
        Ok(lba) => {
            println!("LBA {}: appended and read back", lba.0);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{location}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the LBA of the block.
pub fn append_and_read(location: &str) -> Result<Lba, String> {
    let location = location.parse::<Location>().map_err(|error| error.to_string())?;
    let mut namespace = Connection::open(&location, &NamespaceOptions::default()).map_err(|error| error.to_string())?;
    let geometry = namespace.geometry().clone();

    let report = Operation::ReportZones {
        start: Lba(0),
        filter: ReportFilter::State(ZoneState::Empty),
        extended: false,
        partial: true,
        descriptors_max: 1,
    };
    let Outcome::Report(report) = execute(&mut namespace, report)? else { return Err("no report".to_owned()) };
    let zone_start = report.zones.first().ok_or("no zone is empty")?.start;

    let contents = BlockBuffer {
        data: vec![0x5a; geometry.block_size_bytes as usize].into(),
        metadata: vec![0; usize::from(geometry.metadata_bytes)].into(),
    };
    let payload = Payload::Bytes(Box::new(contents));
    let append = Operation::Append { zone_start, blocks: Blocks(1), payload: payload.clone() };
    let Outcome::Appended(lba) = execute(&mut namespace, append)? else { return Err("no LBA".to_owned()) };
    execute(&mut namespace, Operation::Flush)?; // from here on the block survives a loss of power

    let read = execute(&mut namespace, Operation::Read { start: lba, blocks: Blocks(1) })?;
    if read != Outcome::Data(payload) {
        return Err(format!("LBA {} has other contents", lba.0));
    }
    namespace.close().map_err(|error| error.to_string())?;
    Ok(lba)
}

/// Executes one operation, and waits for it. Programs with several commands in flight call
/// `submit`, `run_once` and `poll`.
fn execute(namespace: &mut Connection, operation: Operation) -> Result<Outcome, String> {
    let name = operation.name();
    let completion = namespace.execute(operation).map_err(|error| error.to_string())?;
    if completion.status.is_success() { Ok(completion.outcome) } else { Err(format!("{name}: {}", completion.status)) }
}

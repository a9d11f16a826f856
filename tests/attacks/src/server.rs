//! The attacked server.

use std::fs::{self, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use zonda_chap::Secret;

use crate::attack::Victim;
use crate::nbd::Disk;
use crate::process::Process;
use crate::{DRIVE_BLOCKS, EXPORT, GUARDED, HOST, OPEN};

/// A drive of 64 MiB in memory.
const DRIVE: &str = r#"memory = { profile = "conventional", set = { "geometry.zones" = 4, "geometry.conventional_zones" = 4, "geometry.zone_size" = "16 MiB", "geometry.zone_capacity" = "16 MiB" } }"#;
/// Bytes of one write that fills drives.
const FILL_BYTES: usize = 1 << 20;
/// Timeout of a status request.
const STATUS_MAX: Duration = Duration::from_secs(10);

/// A running server.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) victim: Victim,
    /// The secret of the honest host.
    pub(crate) secret: Secret,
    /// Its log and its files.
    _directory: tempfile::TempDir,
    log: PathBuf,
}

impl Server {
    /// Starts it with an optional budget, and fills the drives.
    pub(crate) fn start(program: &Path, memory: Option<&str>) -> io::Result<Server> {
        let directory = tempfile::tempdir()?;
        let secret = Secret::generate(None, [5; 64]);
        let (key, config) = (directory.path().join("host.key"), directory.path().join("zonda.toml"));
        fs::write(&key, secret.to_string())?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        let memory = memory.map_or_else(String::new, |memory| format!("memory = \"{memory}\"\n"));
        fs::write(
            &config,
            format!(
                "[server]\nlisten = \"127.0.0.1:0\"\nhttp = \"127.0.0.1:0\"\n{memory}\
                 dh_groups = [\"ffdhe8192\", \"ffdhe2048\"]\n\
                 [[subsystem]]\nnqn = \"{OPEN}\"\n[[subsystem.namespace]]\n{DRIVE}\n\
                 [[subsystem]]\nnqn = \"{GUARDED}\"\nhost = [{{ nqn = \"{HOST}\", secret_file = \"host.key\" }}]\n\
                 [[subsystem.namespace]]\n{DRIVE}\n\
                 [[nbd]]\nlisten = \"127.0.0.1:0\"\n[[nbd.export]]\nname = \"{EXPORT}\"\nnqn = \"{OPEN}\"\nnamespace = 1\n"
            ),
        )?;
        let log = directory.path().join("server.log");
        let mut command = Command::new(program);
        command.args(["serve", "--json", "--config"]).arg(&config);
        let mut process =
            Process(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?).spawn()?);
        let output = process.0.stdout.take().expect("its output is a pipe");
        let mut greeting = String::new();
        BufReader::new(output).read_line(&mut greeting)?;
        let fail = |what: &str| io::Error::other(format!("{what}\n{}", fs::read_to_string(&log).unwrap_or_default()));
        let greeting: Value = serde_json::from_str(&greeting).map_err(|_| fail("the server failed to start"))?;
        let address = |text: Option<&str>| text.and_then(|text| text.parse().ok()).ok_or_else(|| fail("no address"));
        let nbd = greeting["nbd"][0]["urls"][0].as_str().and_then(|url| url.strip_prefix("nbd://"));
        let victim = Victim {
            nvme: address(greeting["listen"][0].as_str())?,
            nbd: address(nbd.and_then(|url| url.split('/').next()))?,
            http: address(greeting["http"].as_str())?,
        };
        let server = Server { process, victim, secret, _directory: directory, log };
        server.fill()?;
        Ok(server)
    }

    /// Writes every block of the drive that attackers read: unwritten blocks take no memory.
    fn fill(&self) -> io::Result<()> {
        let mut disk = Disk::open(Ipv4Addr::LOCALHOST, self.victim.nbd)?;
        for start in (0..DRIVE_BLOCKS * crate::BLOCK_BYTES as u64).step_by(FILL_BYTES) {
            disk.write(start, &[7; FILL_BYTES])?;
        }
        Ok(())
    }

    /// The end of its log.
    pub(crate) fn last_of_log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

/// `/status.json` of a server.
pub(crate) fn status(http: SocketAddr) -> io::Result<Value> {
    let mut stream = TcpStream::connect(http)?;
    stream.set_read_timeout(Some(STATUS_MAX))?;
    write!(stream, "GET /status.json HTTP/1.0\r\nHost: {http}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(|error| io::Error::other(format!("{error}: {answer:.80}")))
}

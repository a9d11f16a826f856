use std::path::Path;

use zonda_chap::Group;
use zonda_config::ConfigError;
use zonda_ssd::description::ErrorSource;

use super::*;

const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

fn parse_with(text: &str, read_file: &dyn Fn(&str) -> Result<String, String>) -> Result<ServerPlan, ConfigError> {
    let context = ParseContext {
        base: Path::new("/etc/zonda"),
        builtin_profiles: zonda_profiles::BUILTIN,
        read_file,
        read_key: read_file,
    };
    ServerPlan::parse(text, &context).map_err(|error| error.error)
}

fn parse(text: &str) -> Result<ServerPlan, ConfigError> {
    parse_with(text, &|path| Err(format!("{path} does not exist")))
}

/// The error, and the text at its position.
fn mistake(text: &str) -> (String, String) {
    let error = parse(text).expect_err(text);
    assert!(error.help.is_some(), "no remedy: {}", error.message);
    (error.message.clone(), error.span.clone().map_or(String::new(), |span| text[span].to_owned()))
}

const ONE: &str = "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:a\"\n[[subsystem.namespace]]\nimage = \"a\"\n";

#[test]
fn listen_is_an_address_or_a_list_of_them() {
    for (written, what) in [("5", "5"), ("true", "true"), ("{ port = 4420 }", "a table")] {
        let error = parse(&format!("[server]\nlisten = {written}\n{ONE}")).expect_err(written);
        assert_eq!(
            error.message,
            format!("\"listen\" must be an address like \"127.0.0.1:4420\", or a list of these, not {what}")
        );
    }
    let error = parse(&format!("[server]\nlisten = [5]\n{ONE}")).expect_err("a number");
    assert_eq!(error.message, "item 1 of \"listen\" must be text in quotes, not 5");
    let two = format!("[server]\nlisten = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n{ONE}");
    assert_eq!(parse(&two).expect("a valid file").listen.len(), 2);
}

#[test]
fn a_small_file_gets_the_defaults() {
    let plan = parse(ONE).expect("a valid file");
    assert_eq!(plan.listen, ["127.0.0.1:4420".parse().expect("an address")]);
    assert_eq!(plan.http, None);
    assert_eq!(plan.spin, zonda_ring::limits::SPIN_DEFAULT);
    assert_eq!(
        parse(&format!("[server]\nspin = \"0 s\"\n{ONE}")).expect("a valid file").spin,
        zonda_zoned::Duration::ZERO
    );
    let (message, place) = mistake(&format!("[server]\nspin = \"1 s\"\n{ONE}"));
    assert_eq!((message.as_str(), place.as_str()), ("the polling time is too long", "\"1 s\""));
    let subsystem = &plan.subsystems[0];
    assert!(subsystem.hosts.is_none(), "any host may connect");
    assert_eq!(subsystem.namespaces[0].id, NamespaceId(1));
    assert_eq!(subsystem.namespaces[0].timing, TimingSpec::None);
    assert!(matches!(&subsystem.namespaces[0].source, Source::Image(path) if path == Path::new("/etc/zonda/a")));
    assert!(subsystem.serial.len() <= 20, "{}", subsystem.serial);
}

#[test]
fn memory_is_a_size_from_a_minimum_on() {
    let with = |size: &str| format!("[server]\nmemory = \"{size}\"\n{ONE}");
    assert_eq!(parse(ONE).expect("a valid file").memory_bytes, None);
    assert_eq!(parse(&with("128 MiB")).expect("a valid file").memory_bytes, Some(128 << 20));
    let text = with("127 MiB");
    let (message, place) = mistake(&text);
    assert_eq!(message, "a memory budget of 127 MiB is too small for the data of all connections");
    assert_eq!(place, "\"127 MiB\"");
    assert_eq!(parse(&text).expect_err("too little").help.as_deref(), Some("use at least 128 MiB"));
}

#[test]
fn the_default_groups_have_at_most_3072_bits() {
    let groups = |text: &str| parse(text).expect("a valid file").auth_policy.groups().to_vec();
    assert_eq!(groups(ONE), [Group::Ffdhe2048, Group::Ffdhe3072, Group::Null]);
    let own = format!("[server]\ndh_groups = [\"ffdhe8192\", \"ffdhe3072\"]\n{ONE}");
    assert_eq!(groups(&own), [Group::Ffdhe8192, Group::Ffdhe3072]);
    for (list, expected) in [
        ("[\"ffdhe1024\"]", "unknown Diffie-Hellman group \"ffdhe1024\""),
        ("[]", "no Diffie-Hellman group is allowed"),
        ("[\"null\", \"null\"]", "group null is listed twice"),
    ] {
        let (message, place) = mistake(&format!("[server]\ndh_groups = {list}\n{ONE}"));
        assert_eq!((message.as_str(), place.as_str()), (expected, list));
    }
}

#[test]
fn serial_numbers_are_stable_across_restarts_and_differ_by_nqn() {
    let serial = |text: &str| parse(text).expect("a valid file").subsystems[0].serial.clone();
    assert_eq!(serial(ONE), serial(ONE));
    assert_ne!(serial(ONE), serial(&ONE.replace("zonda:a", "zonda:b")));
}

#[test]
fn namespaces_without_an_id_get_a_free_one() {
    let text = format!(
        "{ONE}id = 2\n[[subsystem.namespace]]\nmemory = {{ profile = \"zn540\" }}\n[[subsystem.namespace]]\nimage = \"c\"\n"
    );
    let plan = parse(&text).expect("a valid file");
    let ids: Vec<u32> = plan.subsystems[0].namespaces.iter().map(|namespace| namespace.id.0).collect();
    assert_eq!(ids, [1, 2, 3]);
    assert!(matches!(plan.subsystems[0].namespaces[0].source, Source::Memory(_)));
}

#[test]
fn the_timing_of_the_server_is_the_default_of_its_namespaces() {
    let text =
        format!("[server]\ntiming = \"profile\"\n{ONE}[[subsystem.namespace]]\nimage = \"b\"\ntiming = \"none\"\n");
    let plan = parse(&text).expect("a valid file");
    let timings: Vec<TimingSpec> = plan.subsystems[0].namespaces.iter().map(|namespace| namespace.timing).collect();
    assert_eq!(timings, [TimingSpec::Profile, TimingSpec::None]);
}

#[test]
fn a_namespace_has_a_scheduler_unless_it_is_a_volume() {
    let text = format!(
        "{ONE}scheduler = \"mq-deadline\"\n[[subsystem.namespace]]\nimage = \"b\"\n\
         [[subsystem.namespace]]\nimage = \"c\"\nscheduler = \"ezns\"\n"
    );
    let plan = parse(&text).expect("a valid file");
    let of = |namespace: &NamespacePlan| namespace.scheduler;
    let schedulers: Vec<SchedulerSpec> = plan.subsystems[0].namespaces.iter().map(of).collect();
    assert_eq!(schedulers, [SchedulerSpec::MqDeadline, SchedulerSpec::None, SchedulerSpec::Ezns]);
    let text = format!("{ONE}[[subsystem.namespace]]\nvolume = \"v\"\nscheduler = \"mq-deadline\"\n");
    let error = parse(&text).expect_err("a volume has none").to_string();
    assert!(error.contains("a scheduler is not supported for a volume"), "{error}");
}

#[test]
fn a_scheduler_by_conflict_groups_needs_their_file() {
    let text = format!("{ONE}scheduler = \"interference\"\ngroups = \"groups.json\"\n");
    let plan = parse(&text).expect("a valid file");
    let namespace = &plan.subsystems[0].namespaces[0];
    assert_eq!(namespace.scheduler, SchedulerSpec::Interference);
    assert_eq!(namespace.groups.as_deref(), Some(Path::new("/etc/zonda/groups.json")));
    let pool = "[[subsystem.namespace]]\npool = \"p\"\nname = \"db\"\n";
    let settings = "[[pool]]\npath = \"p\"\nscheduler = \"interference\"\n";
    let plan = parse(&format!("{settings}groups = \"g\"\n{ONE}{pool}")).expect("a valid file");
    assert_eq!(plan.subsystems[0].namespaces[1].groups.as_deref(), Some(Path::new("/etc/zonda/g")));
    for (text, message, place) in [
        (format!("{ONE}scheduler = \"interference\"\n"), "needs the conflict groups of the drive", "\"interference\""),
        (format!("{ONE}groups = \"g\"\n"), "groups applies to scheduler = \"interference\" alone", "\"g\""),
        (format!("{settings}{ONE}{pool}"), "needs the conflict groups of the drive", "\"p\""),
        (format!("{ONE}{pool}groups = \"g\"\n"), "groups cannot be set for one namespace of a pool", "\"g\""),
    ] {
        let (found, at) = mistake(&text);
        assert!(found.contains(message) && at == place, "{text}: {found} at {at}");
    }
}

#[test]
fn a_scheduler_that_is_not_a_word_is_refused_with_the_words() {
    for (value, found) in [
        ("{ policy = \"mq-deadline\", in_flight = 3 }", "a table"),
        ("{ in_flight = 3 }", "a table"),
        ("{ mq-deadline = 3 }", "a table"),
        ("3", "3"),
    ] {
        let text = format!("{ONE}scheduler = {value}\n");
        let error = parse(&text).expect_err("not a word");
        assert_eq!(
            error.message,
            format!("\"scheduler\" must be \"none\", \"mq-deadline\", \"ezns\" or \"interference\", not {found}")
        );
        assert_eq!(error.span.map(|span| text[span].to_owned()).as_deref(), Some(value));
    }
}

#[test]
fn a_namespace_of_an_image_is_read_only_if_configured() {
    let text = format!("{ONE}read_only = true\n[[subsystem.namespace]]\nimage = \"b\"\nread_only = false\n");
    let plan = parse(&text).expect("a valid file");
    let read_only: Vec<bool> = plan.subsystems[0].namespaces.iter().map(|namespace| namespace.read_only).collect();
    assert_eq!(read_only, [true, false]);
    let memory = ONE.replace("image = \"a\"", "memory = { profile = \"tiny\" }\nread_only = false");
    assert!(!parse(&memory).expect("a valid file").subsystems[0].namespaces[0].read_only);
}

#[test]
fn a_secret_may_be_in_a_file() {
    let text = ONE.replace(
        "[[subsystem.namespace]]",
        "host = [{ nqn = \"nqn.2014-08.org.nvmexpress:host1\", secret_file = \"h.key\" }]\n[[subsystem.namespace]]",
    );
    let read = |path: &str| {
        assert_eq!(path, "h.key", "the path is passed as written");
        Ok(format!("{SECRET}\n"))
    };
    let plan = parse_with(&text, &read).expect("a valid file");
    assert!(plan.subsystems[0].hosts.as_ref().expect("only this host")[0].secret.is_some());
    let error = parse(&text).expect_err("the file is missing");
    assert!(error.message.starts_with("cannot read the secret"), "{}", error.message);
}

#[test]
fn an_invalid_secret_is_not_printed() {
    let wrong = SECRET.replace("ia6z", "ia6y");
    let host = format!("host = [{{ nqn = \"nqn.2014-08.org.nvmexpress:host1\", secret = \"{wrong}\" }}]");
    let error = parse(&ONE.replace("[[subsystem.namespace]]", &format!("{host}\n[[subsystem.namespace]]")));
    let error = error.expect_err("a letter was changed");
    assert!(error.message.starts_with("invalid DH-HMAC-CHAP secret"), "{}", error.message);
    assert!(!error.message.contains("ia6y") && !error.help.expect("a remedy").contains("ia6y"));
}

#[test]
fn a_duplicate_nqn_is_refused_at_the_later_subsystem() {
    let subsystem = |nqn: &str, image: &str| {
        format!("[[subsystem]]\nnqn = \"{nqn}\"\n[[subsystem.namespace]]\nimage = \"{image}\"\n")
    };
    let (a, b) = ("nqn.2026-01.io.zonda:a", "nqn.2026-01.io.zonda:b");
    let text = subsystem(a, "1") + &subsystem(b, "2") + &subsystem(a, "3");
    let error = parse(&text).expect_err("the third NQN is a duplicate");
    assert!(error.message.contains("duplicate NQN"), "{}", error.message);
    let span = error.span.expect("a place");
    let third = text.rfind(a).expect("it is written there");
    assert!(span.contains(&third), "{span:?} is not the third subsystem's name at {third}");
    assert_eq!(text[span].trim_matches('"'), a);
    assert!(parse(&(subsystem(a, "1") + &subsystem(b, "2"))).is_ok(), "different names are served together");
}

#[test]
fn each_error_has_its_position() {
    let twice = format!("{ONE}{}", ONE.replace("image = \"a\"", "image = \"b\""));
    let same_image = format!("{ONE}[[subsystem.namespace]]\nimage = \"a\"\n");
    let both = ONE.replace("image = \"a\"", "image = \"a\"\nmemory = { profile = \"zn540\" }");
    let cases = [
        ("[server]\n".to_owned(), "no subsystem is configured", ""),
        ("[[subsystem]]\nnqn = \"a\"\n".to_owned(), "not a valid NQN", "\"a\""),
        ("[[subsystem]]\nnqn = \"nqn.2024-01.a:a\"\n".to_owned(), "this subsystem has no namespace", "[[subsystem]]"),
        (twice, "duplicate NQN", "\"nqn.2026-01.io.zonda:a\""),
        (same_image, "this image is already used by another namespace", "\"a\""),
        (both, "a namespace needs exactly one of image, device, volume, pool and memory", "[[subsystem.namespace]]"),
        (
            format!("{ONE}[[subsystem.namespace]]\nvolume = \"v\"\ntiming = \"profile\"\n"),
            "timing = \"profile\" is not supported for a volume",
            "\"v\"",
        ),
        (
            format!("{ONE}[[subsystem.namespace]]\ndevice = \"/dev/sdb\"\ntiming = \"profile\"\n"),
            "timing = \"profile\" is not supported for a drive of this machine",
            "\"/dev/sdb\"",
        ),
        (
            format!("{ONE}[[subsystem.namespace]]\ndevice = \"/dev/sdb\"\nread_only = true\n"),
            "the drive /dev/sdb cannot be served read-only",
            "true",
        ),
        (
            format!("{ONE}[[subsystem.namespace]]\ndevice = \"/dev/sdb\"\nimage = \"b\"\n"),
            "a namespace needs exactly one of image, device, volume, pool and memory",
            "[[subsystem.namespace]]",
        ),
        (
            format!("{ONE}[[subsystem.namespace]]\nvolume = \"v\"\nread_only = true\n"),
            "the volume /etc/zonda/v cannot be served read-only",
            "true",
        ),
        (
            format!("{ONE}[[subsystem.namespace]]\nmemory = {{ profile = \"tiny\" }}\nread_only = true\n"),
            "a drive in memory cannot be served read-only",
            "true",
        ),
        (
            format!("{ONE}[[subsystem.namespace]]\nmemory = {{ profile = \"tiny\" }}\nzones = 4\n"),
            "zones applies to an image that is not read-only",
            "4",
        ),
        (format!("{ONE}read_only = true\nzones = 4\n"), "zones applies to an image that is not read-only", "4"),
        (format!("{ONE}zones = 0\n"), "a namespace has at least one zone", "0"),
        (format!("{ONE}id = 0\n"), "invalid namespace ID 0", "0"),
        (format!("{ONE}id = 1\n[[subsystem.namespace]]\nimage = \"b\"\nid = 1\n"), "duplicate namespace ID 1", "1"),
        (format!("[server]\nlisten = \"nowhere\"\n{ONE}"), "cannot resolve the address \"nowhere\"", "\"nowhere\""),
        (format!("[server]\nlisten = []\n{ONE}"), "no address to listen on", "[]"),
        (format!("[server]\nlisen = \"a\"\n{ONE}"), "unknown key \"lisen\"", "lisen"),
        (ONE.replace("nqn =", "serial = \"übung\"\nnqn ="), "not a valid string for Identify Controller", "\"übung\""),
    ];
    for (text, message, place) in cases {
        let (found, at) = mistake(&text);
        assert!(found.contains(message), "{text}\n{found}");
        assert!(at.starts_with(place), "{text}\nat {at:?}, not {place:?}");
    }
}

#[test]
fn errors_of_a_drive_in_memory_have_their_position() {
    let memory = |table: &str| ONE.replace("image = \"a\"", &format!("memory = {table}"));
    let layers = "{ profile = \"tiny\", layer = [{ kind = \"trace\" }] }";
    let wrong_layer = "{ profile = \"tiny\", layer = [{ knd = 3 }] }";
    for (table, message, place) in [
        (layers, "layers are not supported for a drive in memory", layers),
        (wrong_layer, "layers are not supported for a drive in memory", wrong_layer),
        ("{ profile = \"tinny\" }", "unknown profile \"tinny\"", "\"tinny\""),
        ("{ profile = \"p.toml\" }", "cannot read profile \"p.toml\": p.toml does not exist", "\"p.toml\""),
        (
            "{ profile = \"tiny\", set = { \"flash.dyes\" = 3 } }",
            "unknown profile key \"flash.dyes\"",
            "\"flash.dyes\"",
        ),
        ("{ profile = \"tiny\", layers = [] }", "unknown key \"layers\"", "layers"),
    ] {
        assert_eq!(mistake(&memory(table)), (message.to_owned(), place.to_owned()), "{table}");
    }
    // The error of an invalid value names the permitted ones.
    let text = memory("{ profile = \"tiny\", set = { \"zones.parallelism\" = 3 } }");
    let error = parse(&text).expect_err("three of four dies");
    assert_eq!(error.message, "zones.parallelism must divide the number of dies (4)");
    assert_eq!(&text[error.span.expect("a place")], "3");
}

#[test]
fn an_error_in_a_profile_has_its_position_in_that_file() {
    let profile = zonda_profiles::builtin_text("tiny").expect("it is built in");
    let profile = profile.replace("parallelism = 4", "parallelism = 3");
    let read_file = |_: &str| Ok(profile.clone());
    let context = ParseContext {
        base: Path::new("/etc/zonda"),
        builtin_profiles: zonda_profiles::BUILTIN,
        read_file: &read_file,
        read_key: &read_file,
    };
    let text = ONE.replace("image = \"a\"", "memory = { profile = \"p.toml\" }");
    let error = ServerPlan::parse(&text, &context).expect_err("three dies of four");
    let ErrorSource::Profile { path, text } = &error.source else { panic!("not about the profile: {error}") };
    assert_eq!((path.as_str(), &text[error.error.span.expect("a place")]), ("p.toml", "3"));
}

#[test]
fn several_subsystems_use_one_pool_and_each_of_its_namespaces_once() {
    let table = |pool: &str, rest: &str| format!("[[subsystem.namespace]]\npool = \"{pool}\"\n{rest}\n");
    let named = |name: &str| table("p", &format!("name = \"{name}\""));
    let other = "[[subsystem]]\nnqn = \"nqn.2026-01.io.zonda:b\"\n";
    let plan = parse(&format!("{ONE}{}{other}{}", named("db"), named("log"))).expect("a valid file");
    assert_eq!(plan.pools(), [Path::new("/etc/zonda/p")]);
    let of = |subsystem: usize, namespace: usize| &plan.subsystems[subsystem].namespaces[namespace].source;
    for (source, expected) in [(of(0, 1), "db"), (of(1, 0), "log")] {
        assert!(matches!(source, Source::Pool { name, .. } if name == expected), "{source:?}");
    }
    for (text, message, place) in [
        (format!("{}{}", named("db"), named("db")), "this namespace of the pool is already used", "\"db\""),
        (table("p", ""), "a namespace of a pool needs its name", "\"p\""),
        (
            table("p", "name = \"db\"\nscheduler = \"ezns\""),
            "scheduler cannot be set for one namespace of a pool",
            "\"ezns\"",
        ),
        (
            table("p", "name = \"db\"\ntiming = \"profile\""),
            "timing cannot be set for one namespace of a pool",
            "\"profile\"",
        ),
        (
            "[[subsystem.namespace]]\nmemory = { profile = \"tiny\" }\nname = \"db\"\n".to_owned(),
            "no pool is given",
            "\"db\"",
        ),
    ] {
        let (found, at) = mistake(&format!("{ONE}{text}"));
        assert!(found.contains(message) && at == place, "{text}: {found} at {at}");
    }
}

#[test]
fn scheduler_and_timing_of_a_pool_are_those_of_all_its_namespaces() {
    let named = |pool: &str, name: &str, rest: &str| {
        format!("[[subsystem.namespace]]\npool = \"{pool}\"\nname = \"{name}\"\n{rest}")
    };
    let two = named("p", "db", "read_only = true\n") + &named("p", "log", "scheduler = \"ezns\"\n");
    let settings = "[[pool]]\npath = \"p\"\nscheduler = \"ezns\"\ntiming = \"profile\"\n";
    let plan = parse(&format!("{settings}{ONE}{two}{}", named("q", "db", ""))).expect("a valid file");
    let of = |namespace: &NamespacePlan| (namespace.scheduler, namespace.timing, namespace.read_only);
    let found: Vec<_> = plan.subsystems[0].namespaces.iter().map(of).collect();
    let (ezns, none) = (SchedulerSpec::Ezns, SchedulerSpec::None);
    let (profile, fast) = (TimingSpec::Profile, TimingSpec::None);
    assert_eq!(found, [(none, fast, false), (ezns, profile, true), (ezns, profile, false), (none, fast, false)]);
    let plan = parse(&format!("[server]\ntiming = \"profile\"\n{ONE}{}", named("p", "db", ""))).expect("a valid file");
    assert_eq!(plan.subsystems[0].namespaces[1].timing, profile, "that of the server is the default of the pool");
    let one = named("p", "db", "");
    for (text, message, place) in [
        (format!("{settings}{settings}{ONE}{one}"), "an earlier [[pool]] table has the same path", "\"p\""),
        (format!("{settings}{ONE}{}", named("q", "db", "")), "no namespace of this pool is served", "\"p\""),
        (format!("{settings}{ONE}{one}timing = \"none\"\n"), "timing cannot be set for one namespace", "\"none\""),
        (format!("{settings}{ONE}{one}scheduler = \"none\"\n"), "scheduler cannot be set for one", "\"none\""),
    ] {
        let (found, at) = mistake(&text);
        assert!(found.contains(message) && at == place, "{text}: {found} at {at}");
    }
}

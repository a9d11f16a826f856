use proptest::prelude::*;

use super::*;

fn refusal(lines: &str) -> (String, String, String) {
    let text = format!("zonda-file-trace 1\n{lines}");
    let error = Trace::parse(&text).expect_err(lines);
    let place = error.span.map_or_else(String::new, |span| text[span].to_owned());
    (place, error.message, error.help.expect("every error has a remedy"))
}

#[test]
fn a_trace_has_a_header_comments_and_lines_of_all_kinds() {
    let text = "# made by hand\n\nzonda-file-trace 1\n  # indented\n0 create a short\r\n0\tappend a 1.5KiB\n0 sync a\n\
                3 read a 512 1001\n0 think 100us\n0 close a\n0 rename a b\n3 create a\n3 delete b";
    let trace = Trace::parse(text).unwrap();
    let lines: Vec<String> = trace.entries().map(|entry| entry.to_string()).collect();
    assert_eq!(
        lines,
        [
            "0 create a short",
            "0 append a 1536B",
            "0 sync a",
            "3 read a 512B 1001B",
            "0 think 100us",
            "0 close a",
            "0 rename a b",
            "3 create a",
            "3 delete b"
        ]
    );
    let expected =
        TraceFacts { entries: 9, threads: 2, creates: 2, append_bytes: 1536, read_bytes: 1001, live_bytes_max: 1536 };
    assert_eq!(trace.facts(), expected);
}

#[test]
fn a_text_that_is_not_a_trace_is_refused_at_its_first_line() {
    for (text, place, message) in [
        ("", "", "the trace is empty"),
        ("# only this\n", "", "the trace is empty"),
        ("zonda-file-trace 1\n\n", "", "the trace has no operations"),
        (" 0 create a \n", "0 create a", "this is not the header of a file trace"),
        ("zonda-file-trace 2\n", "2", "the trace has version 2"),
    ] {
        let error = Trace::parse(text).unwrap_err();
        assert_eq!((error.span.map_or("", |span| &text[span]), error.message.as_str()), (place, message));
        assert!(error.help.is_some(), "{message}");
    }
}

#[test]
fn a_mistake_in_a_line_is_shown_at_its_word() {
    let long = "x".repeat(256);
    for (line, place, message) in [
        ("0", "0", "the operation is missing"),
        ("x create a", "x", "\"x\" is not a thread number"),
        ("1024 create a", "1024", "\"1024\" is not a thread number"),
        ("+1 create a", "+1", "\"+1\" is not a thread number"),
        ("0 crate a", "crate", "unknown operation \"crate\""),
        ("0 create", "0 create", "the name of the file is missing"),
        ("0 create a shrot", "shrot", "unknown lifetime \"shrot\""),
        ("0 create a short 1", "1", "unexpected word \"1\""),
        ("0 think", "0 think", "the time is missing"),
        ("0 think 10", "10", "\"10\" is not a time"),
        ("0 think 2h", "2h", "the think time is too long"),
        ("0 create a\n0 append a", "0 append a", "the number of bytes is missing"),
        ("0 create a\n0 append a 0", "0", "the number of bytes is out of range"),
        ("0 create a\n0 append a 2GiB", "2GiB", "the number of bytes is out of range"),
        ("0 create a\n0 read a 8k 1", "8k", "\"8k\" is not a size"),
        (&format!("0 create {long}"), &long, "the name has 256 bytes"),
    ] {
        let (found, reported, help) = refusal(line);
        assert_eq!((found.as_str(), reported.as_str()), (place, message), "{line}");
        assert!(!help.is_empty());
    }
    assert_eq!(refusal("0 crate a").2.split('?').next(), Some("did you mean \"create\""));
    assert_eq!(refusal(&"x".repeat(2000)).1, "the line has 2000 bytes");
}

#[test]
fn an_invalid_file_operation_is_reported_with_its_line() {
    for (lines, message) in [
        ("0 append a 1", "file a does not exist"),
        ("0 create a\n1 create a", "file a already exists"),
        ("0 create a\n0 close a\n0 append a 1", "a is closed and accepts no more data"),
        ("0 create a\n0 close a\n0 sync a", "a is closed and accepts no more data"),
        ("0 create a\n0 close a\n0 close a", "a is closed and accepts no more data"),
        ("0 create a\n0 delete a\n0 read a 0 1", "file a does not exist"),
        ("0 create a\n0 rename a a", "a is renamed to itself"),
        ("0 create a\n0 rename a b\n0 delete a", "file a does not exist"),
    ] {
        let (place, reported, _) = refusal(lines);
        assert_eq!((place.as_str(), reported.as_str()), (lines.lines().last().unwrap(), message), "{lines}");
    }
}

#[test]
fn a_rename_deletes_the_replaced_file() {
    let text = "zonda-file-trace 1\n0 create a\n0 append a 10\n0 close a\n0 create b\n0 append b 7\n0 rename b a\n0 append a 1";
    assert_eq!(Trace::parse(text).unwrap().facts().live_bytes_max, 17);
}

fn any_operation() -> impl Strategy<Value = FileOperation> {
    let name = || "[a-z0-9/._-]{1,12}".prop_map(|name| FileName::from(name.as_str()));
    let bytes = || 1..=OPERATION_BYTES_MAX;
    prop_oneof![
        (name(), 0usize..6).prop_map(|(file, at)| FileOperation::Create { file, lifetime: Lifetime::ALL[at] }),
        (name(), bytes()).prop_map(|(file, bytes)| FileOperation::Append { file, bytes }),
        name().prop_map(|file| FileOperation::Sync { file }),
        name().prop_map(|file| FileOperation::Close { file }),
        (name(), any::<u64>(), bytes()).prop_map(|(file, offset_bytes, bytes)| FileOperation::Read {
            file,
            offset_bytes,
            bytes
        }),
        (name(), name()).prop_map(|(file, to)| FileOperation::Rename { file, to }),
        name().prop_map(|file| FileOperation::Delete { file }),
        (0..=THINK_MAX_NS).prop_map(|ns| FileOperation::Think { time: Duration(ns) }),
    ]
}

proptest! {
    #[test]
    fn an_entry_that_is_written_reads_back(thread in 0..THREADS_MAX, operation in any_operation()) {
        let written = TraceEntry { thread: ThreadIndex(thread), operation };
        let line = written.to_string();
        let words = Words { line: &line, start: 0, at: 0 };
        prop_assert_eq!(entry(words, &FileTable::default()), Ok(written));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "(zonda-file-trace 1\n)?([0-9]{1,5} (create|append|read|rename|think|x) [^\n]{0,20}\n){0,6}") {
        if let Ok(trace) = Trace::parse(&text) {
            prop_assert_eq!(trace.entries().count() as u64, trace.facts().entries);
        }
    }
}

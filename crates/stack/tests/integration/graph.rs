//! Device graphs over drives of any kind.

use zonda_config::{Spanned, unplaced};
use zonda_layers::Memory;
use zonda_profiles::builtin_text;
use zonda_raid::{Level, Scheme, VolumeConfig};
use zonda_ssd::profile::Profile;
use zonda_stack::{Factory, LayerResult, LayerSpec, Node, Stack, TraceSpec, VolumeNode};
use zonda_zoned::{
    Blocks, Command, CommandId, Completion, CompletionQueue, Geometry, Instant, Lba, NamespaceId, Operation,
    PayloadKind, Prng, ZonedDevice,
};

fn geometry() -> Geometry {
    Profile::parse(builtin_text("tiny").expect("it is built in")).expect("it is valid").geometry()
}

/// Drives in memory, by name. A drive named `missing` cannot be opened.
#[derive(Default)]
struct Named {
    opened: Vec<&'static str>,
}

impl Factory<&'static str> for Named {
    type Drive = Memory;
    type Error = String;

    fn drive(&mut self, name: &&'static str, _prng: &Prng) -> Result<Memory, String> {
        if *name == "missing" {
            return Err(format!("{name} cannot be opened"));
        }
        self.opened.push(name);
        Ok(Memory::new(geometry(), 1 << 30))
    }
}

/// A trace over a volume, whose first member has a trace too.
fn graph(names: [&'static str; 3]) -> Node<&'static str> {
    let trace: [Spanned<LayerSpec>; 1] = [unplaced(LayerSpec::Trace(TraceSpec { events: None }))];
    let traced = |node: Node<&'static str>, mut geometry: Geometry| {
        node.with_layers(&trace, &mut geometry, PayloadKind::Bytes).expect("a trace fits on any device")
    };
    let mut config = VolumeConfig::new("volume", Scheme { level: Level::Raid5, data: 2, parity: 1 });
    config.small.unit_blocks = 2;
    config.large.unit_blocks = 8;
    let [first, second, third] = names.map(Node::Drive);
    let volume = VolumeNode { config, members: vec![traced(first, geometry()), second, third] };
    let (of_volume, _) = volume.config.preview(&vec![geometry(); 3]).expect("the members suit the volume");
    traced(Node::Volume(volume), of_volume)
}

fn execute(stack: &mut Stack<Memory>, id: u64, operation: Operation) -> Completion {
    let mut now = Instant::ZERO;
    let mut completions = CompletionQueue::new();
    stack.submit(now, Command::new(CommandId(id), NamespaceId::FIRST, operation)).expect("the queue is not full");
    loop {
        stack.poll(now, &mut completions);
        if let Some(completion) = completions.pop() {
            return completion;
        }
        now = now.max(stack.next_timeout().expect("a command is in flight"));
    }
}

#[test]
fn a_volume_is_built_over_the_drives_of_any_factory() {
    let mut factory = Named::default();
    let mut stack = graph(["a", "b", "c"]).build(&mut factory, &Prng::new(1)).expect("all drives can be opened");
    assert_eq!(factory.opened, ["a", "b", "c"], "in the order of the members");
    // The first poll starts the creation of the volume.
    stack.poll(Instant::ZERO, &mut CompletionQueue::new());
    let read = Operation::Read { start: Lba(0), blocks: Blocks(1) };
    assert!(execute(&mut stack, 1, read).status.is_success());
    let [LayerResult::Trace { operations, .. }] = &stack.layer_results()[..] else { panic!("one layer") };
    assert_eq!((operations[0].operation, operations[0].submitted), ("read", 1), "members have traces of their own");
    let volume = stack.volume().expect("below the trace is the volume");
    let member = volume.member(zonda_raid::MemberIndex(0)).expect("it was built");
    assert!(matches!(&member.layer_results()[..], [LayerResult::Trace { .. }]));
}

#[test]
fn the_error_of_a_drive_is_that_of_the_graph() {
    let mut factory = Named::default();
    let error = graph(["a", "missing", "c"]).build(&mut factory, &Prng::new(1)).err();
    assert_eq!(error.as_deref(), Some("missing cannot be opened"));
    assert_eq!(factory.opened, ["a"], "later drives are not opened");
}

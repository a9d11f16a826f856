mod basics;
mod bench;
mod crashes;
mod failures;
mod rebuild;
mod scrub;
mod swarm;

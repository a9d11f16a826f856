mod crashes;
mod damage;
mod durability;
mod faults;
mod placement;
mod requests;
mod space;

//! Tells Cargo to recompile this crate when a migration changes: the crate embeds the migrations.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}

//! Any stream of FPM messages, into the tables of a router.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::{Bench, Resources};
use artery_router::forged;
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;

const ROUTER: &str =
    "PORT a 10.0.1.1/24 2001:db8:1::1/64 ETHER 2:0:0:0:0:1, PORT b 10.0.2.1/24 ETHER 2:0:0:0:0:2, DAD false";

thread_local! {
    static ROUTERS: (Bench, Arc<Resources>) = {
        let class = CLASSES.find_class("IPRouter").expect("it is a class");
        let resources = Arc::new(Resources::default());
        let setup = Bench::setup(class, ROUTER).inputs(2).outputs(2).resources(resources.clone());
        (setup.build().unwrap_or_else(|errors| panic!("{errors:?}")), resources)
    };
}

fuzz_target!(|data: &[u8]| ROUTERS.with(|(_, resources)| forged::fpm(data, resources, "e")));

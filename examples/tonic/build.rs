//! Writes the code of the service without `protoc`. With a `.proto` file, `tonic-prost-build` does it.

use tonic_build::manual::{Builder, Method, Service};

fn main() {
    let pay = Method::builder()
        .name("pay")
        .route_name("Pay")
        .input_type("crate::Payment")
        .output_type("crate::Receipt")
        .codec_path("tonic_prost::ProstCodec")
        .build();
    let orders = Service::builder().package("shop").name("Orders").method(pay).build();
    Builder::new().compile(&[orders]);
}

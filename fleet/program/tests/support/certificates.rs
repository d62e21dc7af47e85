//! An authority, and certificates of machines that it signs.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// The authority of a fleet.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::default()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// Settings of a machine of 127.0.0.1 that trusts those whom `trusted` has signed.
    pub fn settings(&self, machine: &str, trusted: &Authority, folder: &Path) -> String {
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_string()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, machine);
        params.use_authority_key_identifier_extension = true;
        params.key_usages.push(KeyUsagePurpose::DigitalSignature);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let write = |what: &str, text: String| {
            let path = folder.join(format!("{machine}-{what}.pem"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let ca = write("ca", trusted.pem.clone());
        let (certificate, key) = (write("certificate", certificate.pem()), write("key", key.serialize_pem()));
        format!("[tls]\nca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n")
    }
}

//! Certificates for a trial: an authority, and a certificate for each machine that both ends of a connection
//! show.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

/// The authority that signs certificates of one fleet.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Result<Authority> {
        let mut params = CertificateParams::new(Vec::default())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), pem })
    }

    /// Writes a folder for the machine of an address; it trusts those that `trusted` has signed.
    pub(crate) fn issue(&self, address: Ipv4Addr, trusted: &Authority, parent: &Path) -> Result<PathBuf> {
        let mut params = CertificateParams::new(vec![address.to_string()])?;
        params.distinguished_name.push(DnType::CommonName, address.to_string());
        params.use_authority_key_identifier_extension = true;
        params.key_usages.push(KeyUsagePurpose::DigitalSignature);
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let folder = parent.join(format!("tls-{address}"));
        fs::create_dir_all(&folder)?;
        let files = [
            ("ca.pem", &trusted.pem),
            ("machine.pem", &certificate.pem()),
            ("machine.key", &key.serialize_pem()),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).context("cannot write a certificate")?;
        }
        Ok(folder)
    }
}

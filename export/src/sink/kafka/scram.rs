//! SCRAM authentication for Kafka (RFC 5802, RFC 7677), client side, without channel binding: the password is never sent, and
//! both sides prove that they know it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256, Sha512};

/// Accepted iteration counts: fewer are unsafe (RFC 7677), more would let a server waste CPU time.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=200_000;

/// The hash function of the mechanism.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hash {
    /// SCRAM with SHA-256, as in RFC 7677.
    Sha256,
    /// SCRAM with SHA-512, which Kafka adds.
    Sha512,
}

impl Hash {
    /// Returns the name of the SASL mechanism.
    pub fn mechanism(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    pub(crate) fn mac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        macro_rules! mac {
            ($digest:ty) => {
                // HMAC accepts keys of any length.
                Hmac::<$digest>::new_from_slice(key).map_or_else(
                    |_| Vec::new(),
                    |mut mac| {
                        mac.update(message);
                        mac.finalize().into_bytes().to_vec()
                    },
                )
            };
        }
        match self {
            Self::Sha256 => mac!(Sha256),
            Self::Sha512 => mac!(Sha512),
        }
    }

    pub(crate) fn digest(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(message).to_vec(),
            Self::Sha512 => Sha512::digest(message).to_vec(),
        }
    }

    /// Computes `Hi` of RFC 5802: PBKDF2 with one block.
    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut last = self.mac(password, &[salt, &[0, 0, 0, 1]].concat());
        let mut all = last.clone();
        for _ in 1..iterations {
            last = self.mac(password, &last);
            all.iter_mut().zip(&last).for_each(|(byte, other)| *byte ^= other);
        }
        all
    }
}

/// Client side of an authentication.
pub struct Login<'a> {
    hash: Hash,
    password: &'a str,
    nonce: String,
    client_first: String,
    /// The server signature expected in the final message.
    server_signature: Option<Vec<u8>>,
}

impl std::fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

impl<'a> Login<'a> {
    /// Starts an authentication of this user. `nonce` must be fresh for each one, and without a comma.
    pub fn new(hash: Hash, user: &str, password: &'a str, nonce: &str) -> Self {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let client_first = format!("n={user},r={nonce}");
        Self {
            hash,
            password,
            nonce: nonce.to_owned(),
            client_first,
            server_signature: None,
        }
    }

    /// Returns the client-first message.
    pub fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.client_first).into_bytes()
    }

    /// Returns the client-final message for the server-first message `answer`.
    ///
    /// # Errors
    /// The server's message is invalid; the error says why.
    pub fn last(&mut self, answer: &[u8]) -> Result<Vec<u8>, &'static str> {
        let answer = std::str::from_utf8(answer).map_err(|_| "it is not text")?;
        let mut parts = answer.split(',');
        let nonce = parts.next().and_then(|part| part.strip_prefix("r="));
        let salt = parts.next().and_then(|part| part.strip_prefix("s="));
        let iterations = parts.next().and_then(|part| part.strip_prefix("i="));
        let nonce = nonce.filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce));
        let nonce = nonce.ok_or("it has not the nonce of this login")?;
        let salt = salt
            .and_then(|salt| STANDARD.decode(salt).ok())
            .ok_or("it has no salt")?;
        let iterations = iterations
            .and_then(|number| number.parse().ok())
            .ok_or("it has no iterations")?;
        if !ITERATIONS.contains(&iterations) {
            return Err("its iterations are not 4096 to 200000");
        }
        let salted = self.hash.salted(self.password.as_bytes(), &salt, iterations);
        let client_key = self.hash.mac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{answer},{without_proof}", self.client_first);
        let signature = self
            .hash
            .mac(&self.hash.digest(&client_key), auth_message.as_bytes());
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(byte, other)| byte ^ other)
            .collect();
        let server_key = self.hash.mac(&salted, b"Server Key");
        self.server_signature = Some(self.hash.mac(&server_key, auth_message.as_bytes()));
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes())
    }

    /// Verifies the server signature in the server-final message.
    ///
    /// # Errors
    /// The server does not know the password.
    pub fn verify(&self, answer: &[u8]) -> Result<(), &'static str> {
        let proof = std::str::from_utf8(answer)
            .ok()
            .and_then(|answer| answer.strip_prefix("v="));
        let proof = proof.and_then(|proof| STANDARD.decode(proof.split(',').next().unwrap_or_default()).ok());
        if proof.is_none() || proof != self.server_signature {
            return Err("the server does not know the password");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    #[test]
    fn a_login_is_that_of_the_standard() {
        let mut login = Login::new(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(login.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let nonce = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let answer = format!("{nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let last = format!("c=biws,{nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(login.last(answer.as_bytes()), Ok(last.into_bytes()));
        assert_eq!(
            login.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="),
            Ok(())
        );
        assert!(
            login
                .verify(b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
                .is_err()
        );
        assert!(login.verify(b"").is_err());
    }

    #[test]
    fn what_a_server_must_not_answer_is_refused() {
        for (answer, wrong) in [
            ("r=other,s=W22Z,i=4096", "it has not the nonce of this login"),
            ("r=abc,s=W22Z,i=4096", "it has not the nonce of this login"),
            ("r=abcd,s=,,i=4096", "it has no iterations"),
            ("r=abcd,i=4096", "it has no salt"),
            ("r=abcd,s=W22Z,i=1", "its iterations are not 4096 to 200000"),
            (
                "r=abcd,s=W22Z,i=4000000000",
                "its iterations are not 4096 to 200000",
            ),
        ] {
            let mut login = Login::new(Hash::Sha512, "a,b=", "", "abc");
            assert!(login.verify(b"").is_err());
            assert_eq!(login.first(), b"n,,n=a=2Cb=3D,r=abc");
            assert_eq!(login.last(answer.as_bytes()), Err(wrong), "{answer}");
            assert!(login.verify(b"v=").is_err());
        }
    }
}

//! Sink for S3 and compatible object stores: puts each Parquet file as one object, and signs requests (Amazon S3 API Reference:
//! *PutObject*; *Authenticating Requests: Using the Authorization Header*, Signature Version 4).
//!
//! An object appears only when it is complete, and putting it again replaces the same object.

use std::fmt;

use super::kafka::scram::Hash;
use super::parquet::File;
use super::{Request, Response, escape, one_line, response_summary, unauthorised};
use crate::backoff::Nanos;
use crate::outcome::Outcome;
use crate::text::{digit, rfc3339};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const BODY_HASH_HEADER: &str = "x-amz-content-sha256";
const DATE_HEADER: &str = "x-amz-date";

/// Returns the request that puts a file.
pub fn put(file: File) -> Request {
    let directory: Vec<String> = file.directory.split('/').map(escape).collect();
    request(
        format!("/{}/{}", directory.join("/"), escape(&file.name)),
        file.content,
    )
}

/// Returns a request that puts an object with a wrong checksum header. A server that accepts the credentials refuses the
/// object; one that ignores the checksum stores a small object whose hidden name readers skip.
pub fn probe() -> Request {
    let mut probe = request("/.hopwise-probe".to_owned(), b"hopwise check --connect".to_vec());
    probe
        .headers
        .push(("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==".to_owned()));
    probe
}

/// Creates a PUT request with the hash of its body, which the signature needs.
fn request(target: String, body: Vec<u8>) -> Request {
    let headers = vec![
        ("content-type", "application/vnd.apache.parquet".to_owned()),
        (BODY_HASH_HEADER, hex(&Hash::Sha256.digest(&body))),
    ];
    Request {
        method: "PUT",
        target,
        headers,
        body,
        rows: Vec::new(),
    }
}

/// Classifies the response to a PUT. Records are never rejected, because the response concerns the whole object.
pub fn outcome(response: &Response<'_>) -> Outcome {
    match Outcome::from_status(response.status, one_line(response.body), response.retry_after) {
        Outcome::Refused { reason } => Outcome::Failed {
            reason,
            retry_after: response.retry_after,
        },
        outcome => outcome,
    }
}

/// Checks the response to the probe.
///
/// # Errors
/// One sentence with the problem and the remedy.
pub fn probed(response: &Response<'_>) -> Result<(), String> {
    let text = String::from_utf8_lossy(response.body);
    let summary = response_summary(response);
    match response.status {
        200..=299 => Ok(()),
        400 if text.contains("<Code>BadDigest</Code>") || text.contains("<Code>InvalidDigest</Code>") => {
            Ok(())
        }
        300..=400 if response.status < 400 || text.contains("<Code>AuthorizationHeaderMalformed</Code>") => {
            Err(format!(
                "the bucket is in another region ({summary}); correct `region` and the url"
            ))
        }
        403 if text.contains("<Code>RequestTimeTooSkewed</Code>") => Err(format!(
            "the clocks of this machine and of the server differ too much ({summary}); correct them"
        )),
        401 | 403 => Err(unauthorised(response, ", or let this key put objects there")),
        404 => Err(format!(
            "the server has no such bucket ({summary}); make it, or correct the url"
        )),
        _ => Err(format!("the server does not accept objects: {summary}")),
    }
}

/// An access key with its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The id of the key.
    pub id: String,
    /// The secret of the key.
    pub secret: String,
    /// Region of the bucket, such as `eu-central-1`.
    pub region: String,
}

impl fmt::Debug for Key {
    /// Writes the key without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Key {
    /// Returns the headers that sign a request to `host` at time `now`. `path` precedes the request's target. Both are escaped,
    /// and query parameters must be sorted.
    pub fn sign(&self, request: &Request, host: &str, path: &str, now: Nanos) -> [(&'static str, String); 2] {
        let mut text = Vec::new();
        rfc3339(now, &mut text);
        let digits = text[..19]
            .iter()
            .copied()
            .filter(|byte| !b"-:".contains(byte))
            .collect();
        let time = format!("{}Z", String::from_utf8(digits).unwrap_or_default());
        let day = &time[..time.len().min(8)];
        let mut headers: Vec<(&str, &str)> = request
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        headers.extend([("host", host), (DATE_HEADER, time.as_str())]);
        headers.sort_unstable();
        let signed = headers
            .iter()
            .map(|(name, _)| *name)
            .collect::<Vec<_>>()
            .join(";");
        let lines: String = headers
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let body = headers
            .iter()
            .find(|(name, _)| *name == BODY_HASH_HEADER)
            .map_or("", |(_, hash)| hash);
        let (target, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let method = request.method;
        let canonical = format!("{method}\n{path}{target}\n{query}\n{lines}\n{signed}\n{body}");
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let to_sign = format!(
            "{ALGORITHM}\n{time}\n{scope}\n{}",
            hex(&Hash::Sha256.digest(canonical.as_bytes()))
        );
        let first = format!("AWS4{}", self.secret).into_bytes();
        let key = scope
            .split('/')
            .fold(first, |key, part| Hash::Sha256.mac(&key, part.as_bytes()));
        let signature = hex(&Hash::Sha256.mac(&key, to_sign.as_bytes()));
        let credential = format!("{}/{scope}", self.id);
        let authorization =
            format!("{ALGORITHM} Credential={credential},SignedHeaders={signed},Signature={signature}");
        [(DATE_HEADER, time), ("authorization", authorization)]
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
        .map(char::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Bucket (List Objects)" of *Signature Calculations for the Authorization Header*.
    #[test]
    fn a_request_has_the_signature_of_the_specification() {
        let key = Key {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            region: "us-east-1".to_owned(),
        };
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855".to_owned();
        let request = Request {
            method: "GET",
            target: "/?max-keys=2&prefix=J".to_owned(),
            headers: vec![(BODY_HASH_HEADER, empty)],
            ..Request::default()
        };
        let signed = key.sign(
            &request,
            "examplebucket.s3.amazonaws.com",
            "",
            1_369_353_600_000_000_000,
        );
        let authorization = "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                             SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
                             Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        assert_eq!(
            signed,
            [
                (DATE_HEADER, "20130524T000000Z".to_owned()),
                ("authorization", authorization.to_owned())
            ]
        );
        assert!(!format!("{key:?}").contains("wJalr"));
    }

    #[test]
    fn a_file_is_put_with_the_hash_of_its_content() {
        let file = File {
            directory: "events/date=2026-11-27".to_owned(),
            name: "c+1-1.parquet".to_owned(),
            content: b"PAR1".to_vec(),
        };
        let request = put(file);
        assert_eq!((request.method, request.body.as_slice()), ("PUT", &b"PAR1"[..]));
        assert_eq!(request.target, "/events/date%3D2026-11-27/c%2B1-1.parquet");
        assert_eq!(
            request.headers[1],
            (BODY_HASH_HEADER, hex(&Hash::Sha256.digest(b"PAR1")))
        );
        let key = Key {
            id: "i".to_owned(),
            secret: "s".to_owned(),
            region: "r".to_owned(),
        };
        let [_, (_, authorization)] = key.sign(&request, "h", "/b", 0);
        // All headers are signed, as those that a proxy could change must be.
        assert!(authorization.contains("SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date,"));
    }

    #[test]
    fn what_a_server_says_of_an_object_is_no_fault_of_a_record() {
        let outcome = |status, body: &str| {
            outcome(&Response {
                status,
                retry_after: None,
                body: body.as_bytes(),
                is_cut: false,
            })
        };
        assert_eq!(outcome(200, ""), Outcome::DONE);
        assert!(matches!(
            outcome(400, "<Code>EntityTooLarge</Code>"),
            Outcome::Failed { .. }
        ));
        assert!(matches!(
            outcome(403, "<Code>SignatureDoesNotMatch</Code>"),
            Outcome::Unauthorised { .. }
        ));
        assert!(matches!(
            outcome(503, "<Code>SlowDown</Code>"),
            Outcome::Failed { .. }
        ));
    }

    #[test]
    fn the_probe_is_understood() {
        let summary = |status, code: &str| {
            let body = format!("<Error><Code>{code}</Code></Error>");
            probed(&Response {
                status,
                retry_after: None,
                body: body.as_bytes(),
                is_cut: false,
            })
        };
        assert_eq!(summary(400, "BadDigest"), Ok(()));
        assert_eq!(summary(200, ""), Ok(()));
        for (status, code, reason) in [
            (403, "SignatureDoesNotMatch", "refuses the credentials"),
            (
                403,
                "RequestTimeTooSkewed",
                "the clocks of this machine and of the server differ",
            ),
            (404, "NoSuchBucket", "no such bucket"),
            (301, "PermanentRedirect", "in another region"),
            (400, "AuthorizationHeaderMalformed", "in another region"),
            (400, "InvalidRequest", "does not accept objects"),
        ] {
            assert!(
                summary(status, code).is_err_and(|error| error.contains(reason)),
                "{code}"
            );
        }
    }
}

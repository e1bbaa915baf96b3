import { generateKeyPairSync, randomBytes, X509Certificate } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeCertificate, pem } from "./x509.ts";

/**
 * Host names of the simulated cloud. A wildcard directly below `localhost` does not work, because clients accept
 * wildcards only below a domain of two labels.
 */
const DNS_NAMES = [
  "login.localhost",
  "management.localhost",
  "graph.localhost",
  "devops.localhost",
  "loganalytics.localhost",
  "*.vault.localhost",
  "*.communication.localhost",
  "*.azconfig.localhost",
  "*.blob.localhost",
  "*.queue.localhost",
  "*.cognitiveservices.localhost",
  "*.search.localhost",
  "*.documents.localhost",
  "*.servicebus.localhost",
  "*.signalr.localhost",
  "*.webpubsub.localhost",
  "*.batch.localhost",
  "*.azurecr.localhost",
  "*.postgres.localhost",
  "*.ingest.localhost",
  "atlas.localhost",
  "aws.localhost",
  "hashicorp.localhost",
  "github.localhost",
  "google.localhost",
  "kubernetes.localhost",
  "letsencrypt.localhost",
  "zerossl.localhost",
  "evil.localhost",
  "localhost",
];

const DAY_MS = 86_400_000;

/**
 * Values for a TLS server. `key` and `certificate` hold the same text: the private key and the certificate, both in PEM. Node
 * reads the block that it needs.
 */
export interface ServerCertificate {
  key: string;
  certificate: string;
  /** Certificate of the authority, for `NODE_EXTRA_CA_CERTS`. */
  authorityPath: string;
}

/**
 * Returns the server certificate of the cloud, signed by an authority of its own. Both certificates are stored in the folder,
 * so that clients that trust the authority still trust the server after a restart. The authority's private key is not stored,
 * so it cannot sign another certificate later.
 */
export function serverCertificate(folder: string): ServerCertificate {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const [authorityPath, path] = [join(folder, "ca.pem"), join(folder, "server.pem")];
  if (existsSync(authorityPath) && existsSync(path)) {
    const text = readFileSync(path, "utf8");
    const leaf = new X509Certificate(text);
    const hasAllNames = DNS_NAMES.every((name) => leaf.subjectAltName?.includes(`DNS:${name}`));
    if (hasAllNames && Date.parse(leaf.validTo) > Date.now() + DAY_MS)
      return { key: text, certificate: text, authorityPath };
  }

  const authority = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const leaf = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const validity = { notBefore: new Date(Date.now() - DAY_MS), notAfter: new Date(Date.now() + 365 * DAY_MS) };
  const issuer = `CN=Simulated cloud authority ${randomBytes(4).toString("hex")}`;
  const authorityDer = makeCertificate({
    ...validity,
    subject: issuer,
    issuer,
    serial: randomBytes(16),
    publicKey: authority.publicKey,
    signingKey: authority.privateKey,
    authority: true,
  });
  const leafDer = makeCertificate({
    ...validity,
    subject: "CN=Simulated cloud",
    issuer,
    serial: randomBytes(16),
    publicKey: leaf.publicKey,
    signingKey: authority.privateKey,
    dnsNames: DNS_NAMES,
    ipAddresses: ["127.0.0.1"],
  });
  const text = leaf.privateKey.export({ type: "pkcs8", format: "pem" }) + pem("CERTIFICATE", leafDer);
  writeFileSync(authorityPath, pem("CERTIFICATE", authorityDer));
  writeFileSync(path, text, { mode: 0o600 });
  return { key: text, certificate: text, authorityPath };
}

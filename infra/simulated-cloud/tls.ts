import { generateKeyPairSync, randomBytes, X509Certificate } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { makeCertificate, pem } from "./x509.ts";

/**
 * All names that the simulated cloud serves. A wildcard directly below `localhost` does not work, because clients accept
 * wildcards only below a domain of two labels.
 */
const NAMES = [
  "login.localhost",
  "management.localhost",
  "graph.localhost",
  "devops.localhost",
  "loganalytics.localhost",
  "*.vault.localhost",
  "*.communication.localhost",
  "*.azconfig.localhost",
  "aws.localhost",
  "hashicorp.localhost",
  "github.localhost",
  "google.localhost",
  "kubernetes.localhost",
  "evil.localhost",
  "localhost",
];

const DAY = 86_400_000;

export interface ServerCertificate {
  key: string;
  certificate: string;
  /** Certificate of the authority, for `NODE_EXTRA_CA_CERTS`. */
  authorityPath: string;
}

/**
 * Creates the server certificate of the cloud, signed by its own authority. Both are stored in the data folder, so that clients
 * that trust the authority still trust it after a restart. The authority's private key is not stored, so nothing else can be
 * signed in its name.
 */
export function serverCertificate(folder: string): ServerCertificate {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const [authorityPath, path] = [join(folder, "ca.pem"), join(folder, "server.pem")];
  if (existsSync(authorityPath) && existsSync(path)) {
    const text = readFileSync(path, "utf8");
    const leaf = new X509Certificate(text);
    const names = NAMES.every((name) => leaf.subjectAltName?.includes(`DNS:${name}`));
    if (names && Date.parse(leaf.validTo) > Date.now() + DAY) return { key: text, certificate: text, authorityPath };
  }

  const authority = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const leaf = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const validity = { notBefore: new Date(Date.now() - DAY), notAfter: new Date(Date.now() + 365 * DAY) };
  const issuer = `CN=Stand-in cloud authority ${randomBytes(4).toString("hex")}`;
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
    subject: "CN=Stand-in cloud",
    issuer,
    serial: randomBytes(16),
    publicKey: leaf.publicKey,
    signingKey: authority.privateKey,
    dnsNames: NAMES,
    ipAddresses: ["127.0.0.1"],
  });
  const text = leaf.privateKey.export({ type: "pkcs8", format: "pem" }) + pem("CERTIFICATE", leafDer);
  writeFileSync(authorityPath, pem("CERTIFICATE", authorityDer));
  writeFileSync(path, text, { mode: 0o600 });
  return { key: text, certificate: text, authorityPath };
}

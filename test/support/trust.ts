import { readFileSync } from "node:fs";
import tls from "node:tls";

/**
 * Makes TLS connections that this process opens from now on trust a certificate authority. The variable `NODE_EXTRA_CA_CERTS`
 * has the same effect, but only at the start of a process.
 */
export function trust(authorityPath: string): void {
  const [trusted, authority] = [tls.getCACertificates("default"), readFileSync(authorityPath, "utf8").trim()];
  if (!trusted.some((certificate) => certificate.trim() === authority))
    tls.setDefaultCACertificates([...trusted, authority]);
}

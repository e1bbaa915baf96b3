import { readFileSync } from "node:fs";
import tls from "node:tls";

/**
 * Makes this process trust a certificate authority, as `NODE_EXTRA_CA_CERTS` does for a process that starts. Later
 * connections use it.
 */
export function trust(authorityPath: string): void {
  const [trusted, authority] = [tls.getCACertificates("default"), readFileSync(authorityPath, "utf8").trim()];
  if (!trusted.some((known) => known.trim() === authority)) tls.setDefaultCACertificates([...trusted, authority]);
}

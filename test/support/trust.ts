import { readFileSync } from "node:fs";
import tls from "node:tls";

/**
 * Makes this process trust a certificate authority, as `NODE_EXTRA_CA_CERTS` does at the start of a process. The service's
 * connections to Azure read the authorities when the first connection opens (`shared/platform/connections.ts`).
 */
export function trust(authorityPath: string): void {
  const [trusted, authority] = [tls.getCACertificates("default"), readFileSync(authorityPath, "utf8").trim()];
  if (!trusted.some((known) => known.trim() === authority)) tls.setDefaultCACertificates([...trusted, authority]);
}

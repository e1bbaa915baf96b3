import { createHash, X509Certificate } from "node:crypto";
import { rootCertificates } from "node:tls";
import { loadOnce } from "../platform/load-once.ts";

/** Judges the certificates that a server sends, without a connection. */

/** The properties of the certificates that a server sent for a name. */
export interface ServedFacts {
  /** Serial number of the leaf in the form of `X509Facts.serialNumber`. */
  serial: string;
  /** SHA-1 of the leaf's DER, upper-case hexadecimal, as Key Vault names a certificate. */
  thumbprint: string;
  /** Validity of the leaf, in Unix seconds. Absent if a date can't be read. */
  notBefore?: number;
  notAfter?: number;
  /** Whether the leaf is valid for the name. */
  namesHost: boolean;
  /** Whether the chain leads to a root. Undefined for a private authority whose root is unknown. */
  isComplete: boolean | undefined;
}

/** Reads the properties of served certificates. */
interface ServedChainReader {
  /**
   * Returns the properties of a chain. Undefined if a certificate can't be read: a server can send anything.
   *
   * @param certificates - DER, leaf first.
   */
  read(certificates: readonly Buffer[], host: string): Promise<ServedFacts | undefined>;
}

/** Splits PEM certificates. */
const PEM = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g;

/**
 * Creates the reader.
 *
 * @param authorities - PEM certificates of private roots. The public roots are those that Node contains.
 */
export function createServedChainReader(authorities: string | undefined): ServedChainReader {
  const named = authorities?.match(PEM) ?? [];
  // Parsed on first use: Node contains about 150 roots.
  const roots = loadOnce(async () => {
    const bySubject = new Map<string, X509Certificate[]>();
    for (const text of [...rootCertificates, ...named]) {
      const root = new X509Certificate(text);
      bySubject.set(root.subject, [...(bySubject.get(root.subject) ?? []), root]);
    }
    return bySubject;
  });

  /** Returns whether a certificate is a root, or was issued by a known root. A server need not send the root. */
  async function reachesRoot(certificate: X509Certificate): Promise<boolean> {
    if (certificate.checkIssued(certificate)) return true;
    const issuers = (await roots()).get(certificate.issuer) ?? [];
    return issuers.some((root) => certificate.checkIssued(root) && certificate.verify(root.publicKey));
  }

  async function factsOf(certificates: readonly Buffer[], host: string): Promise<ServedFacts> {
    const { readX509 } = await import("../platform/azure/x509.ts");
    const target = { operation: "read the served certificate", resource: host };
    const { serialNumber, notBefore, notAfter, hasTimestamps } = readX509(certificates[0]!, target, false);
    const chain = certificates.map((der) => new X509Certificate(der));
    let isComplete = false;
    for (const certificate of chain) isComplete ||= await reachesRoot(certificate);
    // Without a known root, the issuer can be a private root that the server rightly does not send. The issuer must be an
    // intermediate if the certificate is public, or if the private roots were named.
    const isUnknownAuthority = !isComplete && !hasTimestamps && named.length === 0;
    return {
      serial: serialNumber,
      thumbprint: createHash("sha1").update(certificates[0]!).digest("hex").toUpperCase(),
      ...(notBefore !== undefined && { notBefore }),
      ...(notAfter !== undefined && { notAfter }),
      // Browsers ignore the name in the subject.
      namesHost: chain[0]!.checkHost(host, { subject: "never", partialWildcards: false }) !== undefined,
      isComplete: isUnknownAuthority ? undefined : isComplete,
    };
  }

  return {
    async read(certificates, host) {
      // Outside of the attempt, because this failure is none of the server's.
      await roots();
      try {
        return await factsOf(certificates, host);
      } catch {
        return undefined;
      }
    },
  };
}

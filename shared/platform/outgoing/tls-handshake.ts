import type { LookupAddress } from "node:dns";
import { connect, type DetailedPeerCertificate, type TLSSocket } from "node:tls";
import { blockedReason } from "./allowed-addresses.ts";
import { rejectOnAbort, resolveAllowedAddress, Unreachable } from "./outgoing.ts";

/** The certificates that a server sends for a name. */
interface ServedChain {
  /** DER of each certificate, the server's own certificate (leaf) first. Each certificate was issued by the next one. */
  certificates: Buffer[];
  /** Version of the protocol, such as `TLSv1.3`. */
  protocol: string;
}

/** Reads the certificates that servers send in a TLS handshake. */
export interface TlsHandshake {
  /**
   * Opens a connection, reads the certificates that the server sends for the name, and closes the connection. Sends no request.
   *
   * @throws {Unreachable} `permanent` if an address of the name is blocked.
   */
  read(host: string, port: number): Promise<ServedChain>;
}

/** Maximum number of certificates of a chain that are read. Chains of public authorities have up to four. */
const MAX_CERTIFICATES = 10;

/**
 * Creates a client that reads the certificates of names that users enter. Like `createOutgoing`, the client resolves a name once,
 * blocks it if one of its addresses is neither public nor in an allowed range, and connects to the checked address.
 *
 * @param options.ranges - Ranges of private addresses that are allowed, such as `10.1.0.0/16`.
 * @param options.remedy - Sentence in a rejection that says how to allow the address.
 * @param options.timeoutMs - Milliseconds for name resolution, connection and handshake together.
 */
export function createTlsHandshake(options: {
  ranges: readonly string[];
  remedy: string;
  timeoutMs: number;
  resolve?: (host: string) => Promise<LookupAddress[]>;
}): TlsHandshake {
  const { ranges, remedy, timeoutMs, resolve } = options;
  return {
    async read(host, port) {
      const limit = new AbortController();
      const timer = setTimeout(() => limit.abort(), timeoutMs);
      const { signal } = limit;
      let socket: TLSSocket | undefined;
      try {
        const blocked = (address: string) => blockedReason(address, "public", ranges);
        const { address } = await resolveAllowedAddress(host, { resolve, blocked, remedy, signal });
        socket = connect({
          host: address,
          port,
          servername: host,
          minVersion: "TLSv1.2",
          // The caller judges the certificate. Nothing secret is sent, so a wrong certificate does no harm.
          rejectUnauthorized: false,
          // Without authorities. Otherwise Node adds known issuers to the chain that the server sent.
          ca: [],
        });
        return await Promise.race([chainOf(socket), rejectOnAbort(signal)]);
      } catch (error) {
        if (error instanceof Unreachable) throw error;
        const reason = signal.aborted ? "it did not answer in time" : (error as Error).message;
        throw new Unreachable(`${host}:${port} was not reached: ${reason}.`, { sent: false, permanent: false });
      } finally {
        clearTimeout(timer);
        socket?.destroy();
      }
    },
  };
}

/** Returns the chain after the handshake. Rejects with an error whose message gives the reason. */
const chainOf = (socket: TLSSocket): Promise<ServedChain> =>
  new Promise((resolve, reject) => {
    // Stays until the socket is destroyed, because a server can reset the connection after the handshake.
    socket.on("error", (error: Error & { code?: string }) => {
      reject(new Error(`the connection failed (${error.code ?? "no code"})`));
    });
    socket.once("close", () => reject(new Error("the connection was closed during the handshake")));
    socket.once("secureConnect", () => {
      const certificates = certificatesFrom(socket.getPeerCertificate(true));
      if (certificates.length === 0) reject(new Error("the server sent no certificate"));
      else resolve({ certificates, protocol: socket.getProtocol() ?? "unknown" });
    });
  });

/** Returns the certificates of a chain. The last certificate has no issuer, or is its own issuer. */
function certificatesFrom(leaf: DetailedPeerCertificate): Buffer[] {
  const certificates: Buffer[] = [];
  let next: DetailedPeerCertificate | undefined = leaf;
  while (next?.raw && certificates.length < MAX_CERTIFICATES) {
    if (certificates.some((known) => known.equals(next!.raw))) break;
    certificates.push(next.raw);
    next = next.issuerCertificate;
  }
  return certificates;
}

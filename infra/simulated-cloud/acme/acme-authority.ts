import type { IncomingRequest, Operation, Service, ServiceResponse } from "../http.ts";
import { versionFrom } from "../vaults/identifiers.ts";
import type { CertificateVersion } from "../vaults/items.ts";
import type { VaultStore } from "../vaults/vault-store.ts";
import { type AcmeServer, errorResponses, problem } from "./acme-server.ts";

/** A window in which a certificate should be renewed. ISO 8601. */
interface SuggestedWindow {
  start: string;
  end: string;
}

/** Let's Encrypt asks clients to wait this long until the next request. */
const RETRY_AFTER_SECONDS = 21_600;

/**
 * An ACME authority: its directory, the server that issues certificates, and renewal information (RFC 9773), also for the
 * company's certificates of `LetsEncrypt`. It suggests a window from two thirds of the validity on that lasts a tenth of the validity.
 */
export class AcmeAuthority {
  readonly #origin: string;
  readonly #resources: VaultStore;
  readonly #windows = new Map<string, SuggestedWindow>();

  /** Issues certificates. */
  readonly server: AcmeServer;

  constructor(origin: string, resources: VaultStore, server: AcmeServer) {
    this.#origin = origin;
    this.#resources = resources;
    this.server = server;
  }

  /** Address of the directory. */
  get directory(): string {
    return `${this.#origin}/directory`;
  }

  /** The setting ARI_DIRECTORIES of a client. */
  get setting(): string {
    return `Let's Encrypt=${this.#origin}/directory`;
  }

  /** Suggests another window for a certificate's current version. Authorities do so before they revoke certificates. */
  suggest(vault: string, certificate: string, window: SuggestedWindow): void {
    const version = this.#resources.vault(vault)?.collections.certificates.get(certificate)?.versions.at(-1);
    if (version === undefined) throw new Error(`Unknown certificate ${vault}/${certificate}`);
    const { der } = version;
    const issued = this.server.issued.find(
      (one) => der !== undefined && one.pem.replaceAll(/-----.*-----|\n/g, "") === der,
    );
    this.#windows.set(issued?.id.split(".")[1] ?? serialOf(version), window);
  }

  readonly service: Service = (request) => this.#operation(request);

  #operation(request: IncomingRequest): Operation | undefined {
    const { method, segments, headers } = request;
    const ofServer = this.server.operation(request);
    if (ofServer !== undefined) return ofServer;
    if (method !== "GET") return undefined;
    // RFC 8555, section 6.1. Pebble rejects such requests too.
    const reject = headers["user-agent"] ? undefined : () => problem(400, "malformed", "A User-Agent is required.");
    if (segments.length === 1 && segments[0] === "directory") {
      const answer = reject ?? (() => this.server.directory(`${this.#origin}/renewal-info`));
      return { name: "acme.directory", errorResponses, answer };
    }
    if (segments.length !== 2 || segments[0] !== "renewal-info") return undefined;
    const id = segments[1]!;
    return { name: "acme.renewalInfo", item: id, errorResponses, answer: reject ?? (() => this.#answer(id)) };
  }

  #answer(id: string): ServiceResponse {
    const issued = this.server.issued.find((one) => one.id === id);
    if (issued !== undefined) {
      const suggestedWindow =
        this.#windows.get(id.split(".")[1]!) ??
        defaultWindow({ notBefore: issued.notBefore, expires: issued.notAfter });
      return { status: 200, headers: { "retry-after": String(RETRY_AFTER_SECONDS) }, body: { suggestedWindow } };
    }
    const version = this.#find(id);
    if (version === undefined) return problem(404, "malformed", "No certificate has this identifier.");
    const suggestedWindow = this.#windows.get(serialOf(version)) ?? defaultWindow(version);
    return {
      status: 200,
      headers: { "retry-after": String(RETRY_AFTER_SECONDS) },
      body: { suggestedWindow },
    };
  }

  /** Finds a version by its identifier: `base64url(authority key identifier).base64url(serial number)`. */
  #find(id: string): CertificateVersion | undefined {
    const serial = id.split(".")[1];
    for (const vault of this.#resources.vaults.values())
      for (const certificate of vault.collections.certificates)
        for (const version of certificate.versions)
          if (version.authority === "LetsEncrypt" && serialOf(version) === serial) return version;
    return undefined;
  }
}

/**
 * Returns the serial number as in an identifier: the content of its DER, which starts with a zero byte if the first bit is set.
 */
function serialOf(version: CertificateVersion): string {
  let bytes = Buffer.from(versionFrom(version.id), "hex");
  while (bytes.length > 1 && bytes[0] === 0) bytes = bytes.subarray(1);
  return Buffer.concat([Buffer.alloc(bytes[0]! & 0x80 ? 1 : 0), bytes]).toString("base64url");
}

function defaultWindow({
  notBefore = 0,
  expires = 0,
}: Pick<CertificateVersion, "notBefore" | "expires">): SuggestedWindow {
  const atShare = (share: number) => new Date((notBefore + (expires - notBefore) * share) * 1000).toISOString();
  return { start: atShare(2 / 3), end: atShare(2 / 3 + 0.1) };
}

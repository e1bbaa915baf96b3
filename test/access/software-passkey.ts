import { createHash, generateKeyPairSync, randomBytes, sign } from "node:crypto";

// An authenticator in software: the answers of a browser to the options of the service, also wrong ones.
// https://www.w3.org/TR/webauthn-3/#sctn-authenticator-data

/** What a passkey signs: a challenge of the service, the origin of the page, and the number of its uses so far. */
interface SigningRequest {
  /** The challenge of the options. */
  challenge: string;
  origin: string;
  counter?: number;
}

const base64url = (bytes: Uint8Array | string): string => Buffer.from(bytes).toString("base64url");
const sha256 = (bytes: Uint8Array | string): Buffer => createHash("sha256").update(bytes).digest();

/**
 * Encodes bytes or text as CBOR with the shortest length (RFC 8949 §4.2.1). The type is added to the length, or to 24 or 25 if
 * the length follows in one or two bytes.
 *
 * @param type - 0x40 for bytes, 0x60 for text.
 */
function cbor(type: number, content: Uint8Array | string): Buffer {
  const bytes = Buffer.from(content);
  const { length } = bytes;
  const head =
    length < 24 ? [type + length] : length < 256 ? [type + 24, length] : [type + 25, length >> 8, length & 255];
  return Buffer.concat([Buffer.from(head), bytes]);
}

export class SoftwarePasskey {
  readonly id = randomBytes(16);
  private readonly rpId: string;
  private readonly key = generateKeyPairSync("ec", { namedCurve: "P-256" });

  constructor(rpId: string) {
    this.rpId = rpId;
  }

  private clientData(type: string, { challenge, origin }: SigningRequest): Buffer {
    return Buffer.from(JSON.stringify({ type, challenge, origin, crossOrigin: false }));
  }

  /** @param flags - 1: the user was present. 0x40: the data of a new credential follows. */
  private authenticatorData(flags: number, counter: number): Buffer {
    const rest = Buffer.alloc(5);
    rest.writeUInt8(flags);
    rest.writeUInt32BE(counter, 1);
    return Buffer.concat([sha256(this.rpId), rest]);
  }

  /** The public key as COSE (RFC 9053 §7.1.1): a map of key type, algorithm ES256, curve P-256, x and y. */
  private get publicKey(): Buffer {
    const { x, y } = this.key.publicKey.export({ format: "jwk" });
    const [head, yKey] = [Buffer.from("a5010203262001215820", "hex"), Buffer.from("225820", "hex")];
    return Buffer.concat([head, Buffer.from(x!, "base64url"), yKey, Buffer.from(y!, "base64url")]);
  }

  /** Returns a public key as COSE: a map of key type, algorithm RS256, a modulus of so many bytes, and the exponent 65537. */
  static longKey(bytes: number): Buffer {
    const modulus = cbor(0x40, randomBytes(bytes));
    return Buffer.concat([Buffer.from("a401030339010020", "hex"), modulus, Buffer.from("2143010001", "hex")]);
  }

  /** Returns the answer to the options of a registration. @param publicKey - As COSE. Default: the passkey's own. */
  register(request: SigningRequest, publicKey = this.publicKey) {
    const idLength = Buffer.alloc(2);
    idLength.writeUInt16BE(this.id.length);
    // Starts with the ID of the authenticator's model: zeros, because there is no attestation.
    const credential = Buffer.concat([Buffer.alloc(16), idLength, this.id, publicKey]);
    const data = Buffer.concat([this.authenticatorData(0x41, request.counter ?? 0), credential]);
    // A map (0xa3) of three members. `attStmt` is an empty map (0xa0).
    const members = [cbor(0x60, "fmt"), cbor(0x60, "none"), cbor(0x60, "attStmt"), Buffer.from("a0", "hex")];
    const attestation = Buffer.concat([Buffer.from("a3", "hex"), ...members, cbor(0x60, "authData"), cbor(0x40, data)]);
    return this.answer({
      clientDataJSON: base64url(this.clientData("webauthn.create", request)),
      attestationObject: base64url(attestation),
    });
  }

  /** Returns the answer to the options of a sign-in. */
  signIn(request: SigningRequest) {
    const clientData = this.clientData("webauthn.get", request);
    const authenticatorData = this.authenticatorData(1, request.counter ?? 0);
    const signature = sign("sha256", Buffer.concat([authenticatorData, sha256(clientData)]), this.key.privateKey);
    return this.answer({
      clientDataJSON: base64url(clientData),
      authenticatorData: base64url(authenticatorData),
      signature: base64url(signature),
    });
  }

  private answer<T>(response: T) {
    const id = base64url(this.id);
    return { id, rawId: id, type: "public-key", response, clientExtensionResults: {} };
  }
}

import { createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, randomUUID } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { CompanyChoice } from "./company/load-company.ts";
import type { AppRegistration } from "./entra.ts";
import type { DirectoryChange } from "./graph/directory.ts";
import type { OidcClient } from "./idp/oidc.ts";
import { newProviderCredentials, type ProviderCredentials } from "./providers/providers.ts";
import type { Principal } from "./tokens.ts";
import type { Change } from "./vaults/vault-store.ts";

/** State that is created at the first start and reused by every later start on the same folder. */
export interface CloudState {
  company: CompanyChoice;
  seed: number;
  /** Unix seconds of the first start. The company's days count from this time. */
  base: number;
  /** The ports of the last start. They are used again when they are free, because clients remember addresses. */
  port: number;
  controlPort: number;
  identityProviderPort: number;
  kubernetesPort: number;
  /** The service's client registration with the identity provider. */
  oidcClient: OidcClient;
  tenantId: string;
  /** The service's own API registration, which other applications request tokens for. */
  apiClientId: string;
  identity: Principal;
  app: AppRegistration;
  identityHeader: string;
  /** Access keys of Communication Services and App Configuration, base64. */
  mailKey: string;
  configurationKey: string;
  providers: ProviderCredentials;
}

/**
 * The files of one simulated cloud: `cloud.json` (state), `signing-key.pem` (signs tokens and certificates), `changes.jsonl`
 * (changes since the company was created), and the folder of mails. The files contain secrets of the simulated cloud, so only
 * their owner can read them.
 */
export class DataFolder {
  readonly path: string;
  readonly #state: string;
  readonly #changes: string;

  constructor(path: string) {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    this.path = path;
    this.#state = join(path, "cloud.json");
    this.#changes = join(path, "changes.jsonl");
  }

  /** Reads the state of the last start. Another company or seed resets the state except identities, keys and ports. */
  state(company: CompanyChoice | undefined, seed: number | undefined): CloudState {
    // A folder of an earlier version lacks members that were added later.
    const before = existsSync(this.#state)
      ? { ...newState(), ...(JSON.parse(readFileSync(this.#state, "utf8")) as CloudState) }
      : undefined;
    if (before !== undefined) {
      const wanted = { company: company ?? before.company, seed: seed ?? before.seed };
      const same = JSON.stringify(wanted) === JSON.stringify({ company: before.company, seed: before.seed });
      if (same) return before;
      writeFileSync(this.#changes, "", { mode: 0o600 });
      return { ...before, ...wanted, base: Math.floor(Date.now() / 1000) };
    }
    return newState(company, seed);
  }

  /** Writes a temporary file and renames it, so that an interrupted start leaves the old state or the new state. */
  keep(state: CloudState): void {
    writeFileSync(`${this.#state}.new`, JSON.stringify(state, null, 2), { mode: 0o600 });
    renameSync(`${this.#state}.new`, this.#state);
  }

  signingKey(): KeyObject {
    const path = join(this.path, "signing-key.pem");
    if (existsSync(path)) return createPrivateKey(readFileSync(path));
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    writeFileSync(path, privateKey.export({ type: "pkcs8", format: "pem" }), { mode: 0o600 });
    return privateKey;
  }

  /** Reads the changes since the company was created. A truncated last line is skipped. */
  changes(): (Change | DirectoryChange)[] {
    if (!existsSync(this.#changes)) return [];
    const lines = readFileSync(this.#changes, "utf8").split("\n");
    const whole = lines.slice(0, -1).join("\n");
    if (lines.at(-1) !== "") writeFileSync(this.#changes, whole === "" ? "" : `${whole}\n`, { mode: 0o600 });
    return whole === "" ? [] : whole.split("\n").map((line) => JSON.parse(line) as Change | DirectoryChange);
  }

  readonly writeChange = (change: Change | DirectoryChange): void => {
    appendFileSync(this.#changes, `${JSON.stringify(change)}\n`, { mode: 0o600 });
  };
}

function newState(company: CompanyChoice = "acme", seed = 1): CloudState {
  return {
    company,
    seed,
    base: Math.floor(Date.now() / 1000),
    port: 0,
    controlPort: 0,
    identityProviderPort: 0,
    kubernetesPort: 0,
    oidcClient: { clientId: "lifecycle-service", clientSecret: randomBytes(24).toString("base64url") },
    tenantId: randomUUID(),
    apiClientId: randomUUID(),
    identity: { clientId: randomUUID(), objectId: randomUUID() },
    app: { clientId: randomUUID(), objectId: randomUUID(), clientSecret: randomBytes(24).toString("base64url") },
    identityHeader: randomUUID(),
    mailKey: randomBytes(64).toString("base64"),
    configurationKey: randomBytes(32).toString("base64"),
    providers: newProviderCredentials(),
  };
}

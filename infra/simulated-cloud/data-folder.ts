import { createPrivateKey, generateKeyPairSync, type KeyObject, randomBytes, randomUUID } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { KeyChange } from "./arm/resource-keys.ts";
import type { CompanyChoice } from "./company/load-company.ts";
import type { AppRegistration } from "./entra.ts";
import type { DirectoryChange } from "./graph/directory.ts";
import type { OidcClient } from "./idp/oidc.ts";
import { newProviderCredentials, type ProviderCredentials } from "./providers/providers.ts";
import type { Principal } from "./tokens.ts";
import type { Change } from "./vaults/vault-store.ts";

/** State that the first start creates and later starts with the same folder reuse. */
export interface CloudState {
  company: CompanyChoice;
  seed: number;
  /** Unix seconds of the first start. The company's days count from this time. */
  base: number;
  /** Ports of the last start. The next start uses them again if they are free, because clients store addresses. */
  port: number;
  controlPort: number;
  identityProviderPort: number;
  kubernetesPort: number;
  /** Absent in folders of earlier versions. */
  nameServerPort?: number;
  /** The service's client registration with the identity provider. */
  oidcClient: OidcClient;
  tenantId: string;
  /** The service's own API registration, which other applications request tokens for. */
  apiClientId: string;
  /** Managed identity of the service. */
  identity: Principal;
  /** Application with a secret, for clients without a managed identity. */
  app: AppRegistration;
  /** Secret header of the managed identity endpoint. */
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
  readonly #stateFile: string;
  readonly #changesFile: string;

  constructor(path: string) {
    mkdirSync(path, { recursive: true, mode: 0o700 });
    this.path = path;
    this.#stateFile = join(path, "cloud.json");
    this.#changesFile = join(path, "changes.jsonl");
  }

  /**
   * Reads the state of the last start. With another company or seed, the changes are deleted; identities, keys and ports stay.
   */
  state(company: CompanyChoice | undefined, seed: number | undefined): CloudState {
    // A folder of an earlier version lacks members that were added later.
    const lastState = existsSync(this.#stateFile)
      ? { ...newState(), ...(JSON.parse(readFileSync(this.#stateFile, "utf8")) as CloudState) }
      : undefined;
    if (lastState !== undefined) {
      const choice = { company: company ?? lastState.company, seed: seed ?? lastState.seed };
      const isSame = JSON.stringify(choice) === JSON.stringify({ company: lastState.company, seed: lastState.seed });
      if (isSame) return lastState;
      writeFileSync(this.#changesFile, "", { mode: 0o600 });
      return { ...lastState, ...choice, base: Math.floor(Date.now() / 1000) };
    }
    return newState(company, seed);
  }

  /** Writes the state to a temporary file and renames the file, so that a crash leaves the old or the new state. */
  writeState(state: CloudState): void {
    writeFileSync(`${this.#stateFile}.new`, JSON.stringify(state, null, 2), { mode: 0o600 });
    renameSync(`${this.#stateFile}.new`, this.#stateFile);
  }

  /** Reads the key that signs tokens and certificates, or creates it. */
  signingKey(): KeyObject {
    const path = join(this.path, "signing-key.pem");
    if (existsSync(path)) return createPrivateKey(readFileSync(path));
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    writeFileSync(path, privateKey.export({ type: "pkcs8", format: "pem" }), { mode: 0o600 });
    return privateKey;
  }

  /** Reads the changes since the company was created. A truncated last line, from a crash, is removed from the file. */
  changes(): (Change | DirectoryChange | KeyChange)[] {
    if (!existsSync(this.#changesFile)) return [];
    const lines = readFileSync(this.#changesFile, "utf8").split("\n");
    const completeLines = lines.slice(0, -1).join("\n");
    if (lines.at(-1) !== "")
      writeFileSync(this.#changesFile, completeLines === "" ? "" : `${completeLines}\n`, { mode: 0o600 });
    return completeLines === ""
      ? []
      : completeLines.split("\n").map((line) => JSON.parse(line) as Change | DirectoryChange | KeyChange);
  }

  readonly writeChange = (change: Change | DirectoryChange | KeyChange): void => {
    appendFileSync(this.#changesFile, `${JSON.stringify(change)}\n`, { mode: 0o600 });
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

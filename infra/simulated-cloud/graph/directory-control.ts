import type { CompanyApplication } from "../company/applications.ts";
import type { Directory, DirectorySettings } from "./directory.ts";
import { type ApplicationRecord, applicationFrom, type SecretRecord } from "./records.ts";
import type { Gap, Targets } from "./watched-secrets.ts";

/** A client secret with its state in the simulated cloud. Times are ISO 8601. */
export interface SecretSummary {
  keyId: string;
  displayName: string | null;
  startsOn: string;
  expiresOn: string;
  madeBy: SecretRecord["madeBy"];
  madeAt: string;
  removedAt?: string;
}

/** Members of an application that a test can change. Days count from now. */
export type ApplicationChange = Partial<
  Pick<
    ApplicationRecord,
    "displayName" | "audience" | "serviceOwns" | "signIn" | "federated" | "policy" | "notes" | "tags"
  >
>;

/**
 * Control operations for the directory: read and change what no client of Microsoft Graph can. The parameter `id` is the client
 * ID or the object ID of an application.
 */
export class DirectoryControl {
  readonly #directory: Directory;
  readonly #targets: Targets;

  constructor(directory: Directory, targets: Targets) {
    this.#directory = directory;
    this.#targets = targets;
  }

  settings(): DirectorySettings {
    return this.#directory.settings;
  }

  /** Changes directory settings. Omitted members stay. */
  set(settings: Partial<DirectorySettings>): void {
    this.#directory.settings = { ...this.#directory.settings, ...settings };
  }

  applications(): { appId: string; objectId: string; displayName: string; secrets: number; certificates: number }[] {
    return this.#directory.all().map(({ appId, objectId, displayName, secrets, keys }) => {
      return { appId, objectId, displayName, secrets: secrets.length, certificates: keys.length };
    });
  }

  /**
   * Adds an application, or replaces an existing one and its credentials. Days count from now.
   * @returns its client ID
   */
  putApplication(declared: CompanyApplication): string {
    const application = applicationFrom(declared, this.#directory.clock.seconds());
    this.#directory.put(application);
    return application.appId;
  }

  /** Changes members of an application. Returns false if there is none. */
  changeApplication(id: string, change: ApplicationChange): boolean {
    const application = this.#directory.currentState(id);
    if (application !== undefined) this.#directory.put({ ...application, ...change });
    return application !== undefined;
  }

  /** Deletes an application. Returns false if there is none. */
  removeApplication(id: string): boolean {
    const application = this.#directory.currentState(id);
    if (application !== undefined) this.#directory.remove(application.objectId);
    return application !== undefined;
  }

  /**
   * Lists all current and former secrets of an application, oldest first.
   * @throws {Error} if there is no such application.
   */
  secrets(id: string): SecretSummary[] {
    const { secrets, removed } = this.#application(id);
    return [...removed, ...secrets].sort((a, b) => a.madeAt - b.madeAt).map(toSummary);
  }

  /** Lists the federated credentials of an application. */
  federatedCredentials(id: string): ApplicationRecord["federated"] {
    return this.#application(id).federated;
  }

  /** Returns whether a workload's token with these claims signs the application in now. */
  signsInFederated(id: string, claims: { issuer: string; subject: string; audience: string }): boolean {
    return this.#directory.signInFederated(this.#application(id), claims) === "accepted";
  }

  /** Adds a secret as another client. Days count from now. */
  addSecret(id: string, secret: { name: string; expiresInDays: number }): { keyId: string; value: string } {
    const startsOn = this.#directory.clock.seconds();
    const expiresOn = Math.round(startsOn + secret.expiresInDays * 86_400);
    return this.#directory.addSecret(this.#application(id), {
      displayName: secret.name,
      startsOn,
      expiresOn,
      madeBy: "control",
    });
  }

  /** Removes a secret as another client. Returns false if there is none. */
  removeSecret(id: string, keyId: string): boolean {
    return this.#directory.removeSecret(this.#application(id), keyId);
  }

  /** Changes the expiry date of a secret. Days count from now. */
  expireSecret(id: string, keyId: string, expiresInDays: number): boolean {
    const application = this.#application(id);
    const expiresOn = Math.round(this.#directory.clock.seconds() + expiresInDays * 86_400);
    const secrets = application.secrets.map((one) => (one.keyId === keyId ? { ...one, expiresOn } : one));
    this.#directory.put({ ...application, secrets });
    return secrets.some((one) => one.keyId === keyId);
  }

  /** Returns a secret's value. Undefined if the secret does not exist or was removed. */
  secretValue(id: string, keyId: string): string | undefined {
    return this.#application(id).secrets.find((one) => one.keyId === keyId)?.value;
  }

  /** Returns the key ID of the existing secret with this value. Undefined if there is none. */
  keyIdOf(id: string, value: string): string | undefined {
    return this.#application(id).secrets.find((one) => one.value === value)?.keyId;
  }

  /** Returns whether every sign-in with this value succeeds now. */
  signsIn(id: string, value: string): boolean {
    const application = this.#directory.currentState(id);
    const now = this.#directory.clock.now();
    const secret = application?.secrets.find((one) => one.value === value);
    if (application === undefined || secret === undefined || application.signIn !== "enabled") return false;
    return secret.startsOn * 1000 <= now && secret.settlesAt <= now && now < secret.expiresOn * 1000;
  }

  /**
   * Watches a vault secret: from now on its value must sign the application in. `gaps` returns the intervals in which the
   * value did not sign the application in.
   */
  watchTarget(target: { appId: string; vault: string; secret: string }): void {
    this.#targets.watch(target);
  }

  /** Returns the intervals in which the value of a watched vault secret did not sign the application in. */
  gaps(): Gap[] {
    return this.#targets.gaps();
  }

  /** Invalidates all delta links. */
  forgetDeltaLinks(): void {
    this.#directory.forgetDeltaLinks();
  }

  #application(id: string): ApplicationRecord {
    const application = this.#directory.currentState(id);
    if (application === undefined) throw new Error(`Unknown application ${id}`);
    return application;
  }
}

function toSummary({
  keyId,
  displayName,
  startsOn,
  expiresOn,
  madeBy,
  madeAt,
  removedAt,
}: SecretRecord): SecretSummary {
  return {
    keyId,
    displayName,
    startsOn: toIso(startsOn * 1000),
    expiresOn: toIso(expiresOn * 1000),
    madeBy,
    madeAt: toIso(madeAt),
    ...(removedAt !== undefined && { removedAt: toIso(removedAt) }),
  };
}

const toIso = (milliseconds: number) => new Date(milliseconds).toISOString();

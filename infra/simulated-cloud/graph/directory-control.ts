import type { CompanyApplication } from "../company/applications.ts";
import type { Directory, DirectorySettings } from "./directory.ts";
import { type ApplicationRecord, applicationFrom, type SecretRecord } from "./records.ts";
import type { Gap, Targets } from "./targets.ts";

/** A client secret as the cloud knows it. Instants are ISO 8601. */
export interface SecretSummary {
  keyId: string;
  displayName: string | null;
  startsOn: string;
  expiresOn: string;
  madeBy: SecretRecord["madeBy"];
  madeAt: string;
  removedAt?: string;
}

/** What can be changed of an application; days are counted from now. */
export type ApplicationChange = Partial<
  Pick<
    ApplicationRecord,
    "displayName" | "audience" | "serviceOwns" | "signIn" | "federated" | "policy" | "notes" | "tags"
  >
>;

/** What a test can see and do behind the back of Microsoft Graph. Applications are named by client id or object id. */
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

  /** From now on; what is left out stays. */
  set(settings: Partial<DirectorySettings>): void {
    this.#directory.settings = { ...this.#directory.settings, ...settings };
  }

  applications(): { appId: string; objectId: string; displayName: string; secrets: number; certificates: number }[] {
    return this.#directory.all().map(({ appId, objectId, displayName, secrets, keys }) => {
      return { appId, objectId, displayName, secrets: secrets.length, certificates: keys.length };
    });
  }

  /** Adds an application, or replaces it with all it holds. Days are counted from now. @returns its client id */
  putApplication(declared: CompanyApplication): string {
    const application = applicationFrom(declared, this.#directory.clock.seconds());
    this.#directory.put(application);
    return application.appId;
  }

  /** False when there is none. */
  changeApplication(id: string, change: ApplicationChange): boolean {
    const application = this.#directory.truth(id);
    if (application !== undefined) this.#directory.put({ ...application, ...change });
    return application !== undefined;
  }

  removeApplication(id: string): boolean {
    const application = this.#directory.truth(id);
    if (application !== undefined) this.#directory.remove(application.objectId);
    return application !== undefined;
  }

  /** All secrets that an application ever had, the oldest first. @throws {Error} when there is no such application. */
  secrets(id: string): SecretSummary[] {
    const { secrets, removed } = this.#application(id);
    return [...removed, ...secrets].sort((a, b) => a.madeAt - b.madeAt).map(summary);
  }

  /** A secret as somebody else makes it; days are counted from now. */
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

  /** As somebody else removes it. False when there is none. */
  removeSecret(id: string, keyId: string): boolean {
    return this.#directory.removeSecret(this.#application(id), keyId);
  }

  /** Changes when a secret ends; days are counted from now. */
  expireSecret(id: string, keyId: string, expiresInDays: number): boolean {
    const application = this.#application(id);
    const expiresOn = Math.round(this.#directory.clock.seconds() + expiresInDays * 86_400);
    const secrets = application.secrets.map((one) => (one.keyId === keyId ? { ...one, expiresOn } : one));
    this.#directory.put({ ...application, secrets });
    return secrets.some((one) => one.keyId === keyId);
  }

  /** A secret's value; undefined when there is none (any more). */
  secretValue(id: string, keyId: string): string | undefined {
    return this.#application(id).secrets.find((one) => one.keyId === keyId)?.value;
  }

  /** The key id of the live secret with this value; undefined when no secret has it. */
  keyIdOf(id: string, value: string): string | undefined {
    return this.#application(id).secrets.find((one) => one.value === value)?.keyId;
  }

  /** Whether every request with this value signs in now. */
  signsIn(id: string, value: string): boolean {
    const application = this.#directory.truth(id);
    const now = this.#directory.clock.now();
    const secret = application?.secrets.find((one) => one.value === value);
    if (application === undefined || secret === undefined || application.signIn !== "enabled") return false;
    return secret.startsOn * 1000 <= now && secret.settlesAt <= now && now < secret.expiresOn * 1000;
  }

  /** From now on what the vault's secret holds must sign the application in; `gaps` tells when it did not. */
  watchTarget(target: { appId: string; vault: string; secret: string }): void {
    this.#targets.watch(target);
  }

  gaps(): Gap[] {
    return this.#targets.gaps();
  }

  /** From now on no delta link is known any more. */
  forgetDeltaLinks(): void {
    this.#directory.forgetDeltaLinks();
  }

  #application(id: string): ApplicationRecord {
    const application = this.#directory.truth(id);
    if (application === undefined) throw new Error(`No application ${id}`);
    return application;
  }
}

function summary({ keyId, displayName, startsOn, expiresOn, madeBy, madeAt, removedAt }: SecretRecord): SecretSummary {
  return {
    keyId,
    displayName,
    startsOn: instant(startsOn * 1000),
    expiresOn: instant(expiresOn * 1000),
    madeBy,
    madeAt: instant(madeAt),
    ...(removedAt !== undefined && { removedAt: instant(removedAt) }),
  };
}

const instant = (milliseconds: number) => new Date(milliseconds).toISOString();

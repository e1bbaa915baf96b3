import { setTimeout as delay } from "node:timers/promises";
import { licence } from "../../test/support/licence.ts";
import { Service } from "../../test/support/service.ts";

// Helpers of the parts that sync a secret to a foreign program: moto.ts and openbao.ts.

const RECORDS = "/api/automation/sync/records";
/** A secret of the company `small`. */
const SOURCE = { vault: "kv-shop-prod", name: "db-password" };

/** Where a sync record writes: the members of its request. */
export interface Target {
  targetProvider: string;
  targetService: string;
  targetName: string;
}

/**
 * Starts the service with a PRO license, and scans.
 * @param environment - With the address of the foreign program
 */
export async function startSync(environment: Record<string, string>): Promise<Service> {
  const service = await Service.start({ company: "small", env: { LICENSE_KEY: await licence(), ...environment } });
  await service.scan();
  return service;
}

/**
 * Configures a provider.
 * @returns `configured`, or why the service rejected the configuration
 */
export async function configure(service: Service, provider: string, configuration: object): Promise<string> {
  const { status, body } = await service.admin("POST", `/api/automation/sync/providers/${provider}`, configuration);
  return status === 200 ? "configured" : `${status} ${body.detail}`;
}

/** A sync record, which copies one secret. */
export class Copy {
  readonly #service: Service;
  readonly #path: string;

  private constructor(service: Service, path: string) {
    this.#service = service;
    this.#path = path;
  }

  /**
   * Creates a record, which runs at once.
   * @throws {Error} if the service rejects it
   */
  static async create(service: Service, target: Target): Promise<Copy> {
    const source = { sourceVault: SOURCE.vault, sourceSecret: SOURCE.name };
    const { status, body, text } = await service.admin("POST", RECORDS, { ...source, ...target });
    if (status !== 201) throw new Error(`The record was answered with ${status}: ${text}`);
    return new Copy(service, `${RECORDS}/${body.recordId}`);
  }

  /**
   * Waits until the run has ended.
   * @returns The state of the record, with the code of the failure
   */
  async state(): Promise<string> {
    for (;;) {
      const { state, failure, running } = (await this.#service.admin("GET", `${this.#path}/status`)).body;
      if (state !== "new" && state !== "pending" && !running) return failure ? `${state} ${failure.code}` : state;
      await delay(200);
    }
  }

  /** Runs the record, and returns its state. */
  async sync(): Promise<string> {
    await this.#service.admin("POST", `${this.#path}/sync`);
    return await this.state();
  }

  /** Deletes the record and the target. */
  async remove(): Promise<string> {
    const { status, text } = await this.#service.admin("DELETE", `${this.#path}?removeTarget=true`);
    return status === 200 ? "removed" : `${status} ${text}`;
  }
}

/** Returns the value of the source. */
export const sourceValue = (service: Service): string => service.cloud.control.secretValue(SOURCE.vault, SOURCE.name)!;

/** Writes a new version of the source. */
export const rotateSource = (service: Service, value: string): void =>
  service.cloud.control.putSecret(SOURCE.vault, { name: SOURCE.name, value });

import { asCloudFailure, type CloudFailure } from "../platform/azure/failure.ts";
import { type Identity, principalOf } from "../platform/azure/identity.ts";
import type { KeyVaults } from "../platform/azure/key-vault.ts";
import type { ResourceManager, VaultResource } from "../platform/azure/resource-manager.ts";
import type { Clock } from "../platform/runtime.ts";
import { type Outbound, type Remedy, remedyFor, type Step } from "./remedy.ts";

/** One step of a connection test. `code`, `detail` and `remedy` are null if it succeeded. */
export interface TestStep {
  step: Step;
  /** ARM resource ID of the tested resource. */
  resource: string;
  ok: boolean;
  code: CloudFailure["code"] | null;
  detail: string | null;
  remedy: Remedy | null;
}

/** Result of a connection test. */
export interface ConnectionTest {
  subscriptionId: string;
  /** Whether every step succeeded. */
  ok: boolean;
  /** Time of the test, ISO 8601. */
  testedAt: string;
  /** ARM resource IDs of the vaults whose lists were tested. */
  sampledVaults: string[];
  steps: TestStep[];
}

/** Number of vaults whose lists are tested, spread over the first page of the listing. */
export const SAMPLED_VAULTS = 5;

/** Time limit for all steps together. The platform requires a response within 230 seconds. */
const TEST_TIMEOUT_MS = 120_000;

/**
 * Tests with the service's own identity what a scan reads in a subscription, when an administrator requests it. Reads the first
 * page of each list, and no details of its entries.
 */
export async function testConnection(
  subscriptionId: string,
  deps: {
    resourceManager: ResourceManager;
    keyVaults: KeyVaults;
    identity: Identity;
    clock: Clock;
    config: Outbound;
  },
): Promise<ConnectionTest> {
  const { resourceManager, keyVaults } = deps;
  const signal = AbortSignal.timeout(TEST_TIMEOUT_MS);
  const scope = `/subscriptions/${subscriptionId}`;
  const testedAt = deps.clock.now().toISOString();
  const principal = await principalOf(deps.identity);

  async function attempt(step: Step, resource: string, vault: VaultResource | undefined, work: () => Promise<unknown>) {
    try {
      await work();
      return { step, resource, ok: true, code: null, detail: null, remedy: null };
    } catch (error) {
      const failure = asCloudFailure(error, { operation: OPERATIONS[step], resource });
      const remedy = remedyFor(failure, { step, scope: resource, vault, principal, outbound: deps.config });
      return { step, resource, ok: false, code: failure.code, detail: failure.message, remedy };
    }
  }

  let firstVaults: VaultResource[] = [];
  const [readable, listable] = await Promise.all([
    attempt("subscriptionReadable", scope, undefined, () => resourceManager.subscription(subscriptionId, signal)),
    attempt("vaultsListable", scope, undefined, async () => {
      firstVaults = (await firstPage(resourceManager.vaults(subscriptionId, signal)))?.vaults ?? [];
    }),
  ]);

  const sampled = sample(firstVaults, SAMPLED_VAULTS);
  const perVault = await Promise.all(
    sampled.map((vault) => {
      const list = (step: Step, pages: (client: ReturnType<KeyVaults["open"]>) => AsyncGenerator<unknown>) =>
        attempt(step, vault.id, vault, async () => firstPage(pages(keyVaults.open(vault))));
      return Promise.all([
        list("secretsListable", (client) => client.secrets(signal)),
        list("keysListable", (client) => client.keys(signal)),
        list("certificatesListable", (client) => client.certificates(signal)),
      ]);
    }),
  );

  const steps: TestStep[] = [readable, listable, ...perVault.flat()];
  return {
    subscriptionId,
    ok: steps.every((step) => step.ok),
    testedAt,
    sampledVaults: sampled.map((vault) => vault.id),
    steps,
  };
}

/** The operation of each step, for the text of a failure. */
const OPERATIONS: Record<Step, string> = {
  subscriptionReadable: "read the subscription",
  vaultsListable: "list vaults",
  secretsListable: "list secrets",
  keysListable: "list keys",
  certificatesListable: "list certificates",
};

async function firstPage<T>(pages: AsyncGenerator<T>): Promise<T | undefined> {
  const first = await pages.next();
  await pages.return(undefined);
  return first.done ? undefined : first.value;
}

/** Returns `count` of the items, evenly spread. */
function sample<T>(items: readonly T[], count: number): T[] {
  if (items.length <= count) return [...items];
  return Array.from({ length: count }, (_, i) => items[Math.floor((i * items.length) / count)]!);
}

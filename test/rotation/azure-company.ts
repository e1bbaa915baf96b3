import type { CompanyResource } from "simulated-cloud/company/resources.ts";
import type { ConsumersOfSecrets } from "../../shared/rotation/consumer.ts";
import { createConsumerDiscovery } from "./consumer-discovery.ts";
import { VAULT, type World } from "./world.ts";

/** Number of consumers of each kind in a campaign, the long test run: 40 in total. */
export const CAMPAIGN_COUNTS = {
  webApp: 14,
  functionApp: 6,
  slot: 2,
  apiManagement: 2,
  containerApp: 11,
  job: 5,
} as const;
export type ConsumerKind = keyof typeof CAMPAIGN_COUNTS;

const system = { system: true };
const settingReference = (secret: string) => `@Microsoft.KeyVault(VaultName=${VAULT};SecretName=${secret})`;

/** Creates an Azure resource of the given kind that reads the vault secret. */
function resource(kind: ConsumerKind, name: string, secret: string): CompanyResource {
  const settings = { DB_PASSWORD: settingReference(secret), OTHER: "plain" };
  const url = `{uri:${VAULT}}/secrets/${secret}`;
  const secrets = [{ name: "db", keyVaultUrl: url, identity: "system" }];
  switch (kind) {
    case "webApp":
    case "functionApp":
      return {
        type: "Microsoft.Web/sites",
        name,
        kind: kind === "webApp" ? "app" : "functionapp,linux",
        identity: system,
        settings,
      };
    case "slot":
      return {
        type: "Microsoft.Web/sites",
        name,
        kind: "app",
        identity: system,
        children: { slots: [{ name: "staging", kind: "app", identity: system, settings }] },
      };
    case "apiManagement": {
      const namedValue = (name: string) => ({
        name,
        properties: { displayName: name, secret: true, keyVault: { secretIdentifier: url } },
      });
      return {
        type: "Microsoft.ApiManagement/service",
        name,
        identity: system,
        children: { namedValues: [namedValue(`${name}-a`), namedValue(`${name}-b`)] },
      };
    }
    case "containerApp":
    case "job":
      return {
        type: kind === "job" ? "Microsoft.App/jobs" : "Microsoft.App/containerApps",
        name,
        identity: system,
        properties: {
          configuration: { secrets },
          template: { containers: [{ name: "main", image: "shop:1", env: [{ name: "DB", secretRef: "db" }] }] },
        },
      };
  }
}

/** Azure resources in the simulated cloud that read one vault secret. The constructor adds them to a subscription. */
export class AzureConsumers {
  readonly ids: { kind: ConsumerKind; id: string }[] = [];
  readonly #world: World;
  readonly #secret: string;
  readonly #subscription: string;

  constructor(
    world: World,
    subscription: string,
    secret: string,
    kinds: Partial<Record<ConsumerKind, number>> = CAMPAIGN_COUNTS,
  ) {
    this.#world = world;
    this.#secret = secret;
    this.#subscription = subscription;
    const { consumers } = world.cloud.control;
    for (const [kind, number] of Object.entries(kinds) as [ConsumerKind, number][]) {
      for (let index = 0; index < number; index++) {
        const name = `${kind.toLowerCase()}-${secret}-${index}`;
        const id = consumers.put(subscription, resource(kind, name, secret));
        this.ids.push({ kind, id: kind === "slot" ? `${id}/slots/staging` : id });
      }
    }
  }

  /** Runs dependency discovery, as the daily timer does. Returns the consumers that rotations then find. */
  async discover(): Promise<ConsumersOfSecrets> {
    const { consumers, discover } = createConsumerDiscovery(this.#world, [this.#subscription]);
    await discover();
    return consumers;
  }

  /** Returns the value that each consumer uses now, and the gaps: the periods in which a consumer had no working value. */
  currentValues() {
    const { consumers } = this.#world.cloud.control;
    const place = { vault: VAULT, secret: this.#secret };
    return {
      values: consumers.values(place).map(({ resource: id, values }) => ({ id, value: values.at(-1)!.value })),
      gaps: consumers.gaps(place),
    };
  }

  remove(): void {
    for (const { id } of this.ids) this.#world.cloud.control.consumers.remove(id.replace("/slots/staging", ""));
  }
}

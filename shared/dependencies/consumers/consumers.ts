import type { Devops } from "../../devops/devops.ts";
import { createApiManagement } from "../../platform/azure/api-management.ts";
import { createAppService } from "../../platform/azure/app-service.ts";
import type { Arm } from "../../platform/azure/arm.ts";
import { createContainerApps } from "../../platform/azure/container-apps.ts";
import type { Config } from "../../platform/config/config.ts";
import type { Clock } from "../../platform/runtime.ts";
import type { ConsumersOfSecrets, PlannedConsumer } from "../../rotation/consumer.ts";
import type { Sync } from "../../sync/sync.ts";
import { keyVaultNames } from "../azure/key-vault-names.ts";
import { consumersOf } from "../blast-radius.ts";
import type { Dependencies } from "../dependencies.ts";
import { applicationVaultName, type ConsumerKind, type Edge } from "../edge.ts";
import type { FoundEdge } from "../query.ts";
import { apiManagementConsumers } from "./api-management.ts";
import { appServiceConsumers } from "./app-service.ts";
import { joinedEvidence, type KindOfConsumer } from "./consumer-kind.ts";
import { containerAppConsumers } from "./container-apps.ts";
import { serviceConnectionConsumers, variableGroupConsumers } from "./devops.ts";
import { syncConsumers } from "./sync-records.ts";

/**
 * Maximum number of coverage items (scopes that discovery could not read) in a plan of a rotation. GET
 * /api/assets/dependencies/coverage lists all.
 */
const MAX_COVERAGE = 20;
/** Factor that converts a weight of the blast radius to an integer. */
const BLAST_PER_WEIGHT = 100;

/**
 * Finds the consumers of secrets from the known dependencies. Refreshes and checks them by their kind. Rotations call it: see
 * `ConsumersOfSecrets`.
 */
export function createConsumersOfSecrets(deps: {
  dependencies: Pick<Dependencies, "edgesOf" | "coverage">;
  arm: Arm;
  devops: Pick<Devops, "organization">;
  sync: Pick<Sync, "get" | "trigger">;
  config: Config;
  clock: Clock;
  tenantId(): Promise<string>;
}): ConsumersOfSecrets {
  const { dependencies, arm, config } = deps;
  const names = keyVaultNames(config.cloud.keyVaultSuffix);
  const site = appServiceConsumers(createAppService(arm), names);
  const kinds: Partial<Record<ConsumerKind, KindOfConsumer>> = {
    webApp: site,
    functionApp: site,
    containerApp: containerAppConsumers(createContainerApps(arm), names, deps.clock),
    apiManagement: apiManagementConsumers(createApiManagement(arm), names),
    syncRecord: syncConsumers(deps.sync),
    devopsVariableGroup: variableGroupConsumers(deps),
    devopsServiceConnection: serviceConnectionConsumers(deps),
  };
  const kindOf = ({ kind }: PlannedConsumer): KindOfConsumer => {
    const found = kinds[kind as ConsumerKind];
    if (found === undefined) throw new Error(`The value that a ${kind} holds can't be observed.`);
    return found;
  };

  /**
   * Returns how a consumer gets a new version of the secret. `automatic`: the consumer reads it without help. `action`: the
   * service refreshes the consumer. `blind`: the service can't tell when. `willBreak`: never, the consumer keeps the old
   * version.
   */
  function howOf({ resource, evidence, pinned, refresh: { how } }: Edge): PlannedConsumer["how"] {
    if (pinned !== undefined) return "willBreak";
    const kind = kinds[resource.kind];
    // Without a check or a refresh of its kind, the service can't tell when the consumer has the new version.
    if (how === "automatic") return kind?.canCheck({ evidence }) ? how : "blind";
    return how === "action" && kind?.refresh === undefined ? "blind" : how;
  }

  /** Returns the consumers of one secret, with sentences about unknown ones. */
  async function consumersIn(secret: { vaultName: string; secretName: string }) {
    const { vaultName, secretName: name } = secret;
    const { edges, more } = await dependencies.edgesOf({ vaultName, type: "secret", name });
    // Identities that only have access are no consumers. For readers known only from a log, `SecretUsage` reports their reads.
    const uses = edges.filter(({ edge }) => edge.strength === "references");
    const named = uses.filter(({ edge }) => edge.name !== undefined);
    const toPlanned = async ({ resource, weight, edges: usesOfResource }: ReturnType<typeof consumersOf>[number]) => {
      const { id, kind, environment } = resource;
      const keyNames = [...new Set(usesOfResource.flatMap(({ edge }) => edge.keyNames ?? []))];
      const planned: PlannedConsumer = {
        id,
        kind,
        name: resource.name,
        ...(environment !== undefined && { environment }),
        ...secret,
        evidence: joinedEvidence([...new Set(usesOfResource.map(({ edge }) => edge.evidence))].sort()),
        how: SLOWEST_FIRST.find((how) => usesOfResource.some(({ edge }) => howOf(edge) === how))!,
        ...(usesOfResource.some(({ edge }) => edge.copy) && { copy: true }),
        ...(keyNames.length > 0 && { keyNames }),
        slowestSeconds: Math.max(...usesOfResource.map(({ edge }) => edge.refresh.slowestSeconds ?? 0)),
        blast: Math.round(weight * BLAST_PER_WEIGHT),
      };
      // A new place stores a copy of a client secret that no rotation wrote. A rotation writes it only if the request names it.
      return (await kinds[kind]?.isNewPlace?.(planned)) ? { ...planned, newPlace: true } : planned;
    };
    const consumers = await Promise.all(consumersOf(named).map(toPlanned));
    const unread = more ? [`${vaultName}/${name} has more known consumers than were checked.`] : [];
    // `unread` is also part of `coverage`. By itself, it keeps a rotation from removing the old client secret automatically.
    return { consumers, coverage: [...wholeVaultCoverage(uses), ...unread], unread };
  }

  return {
    async findConsumers({ places, appId }) {
      const secrets = places.map(({ vaultName, secretName }) => ({ vaultName, secretName }));
      if (appId !== undefined) {
        const tenantId = (await deps.tenantId()).toLowerCase();
        // Consumers with their own copy of a client secret are stored under `entra.<tenant id>` instead of a vault name.
        secrets.push({ vaultName: applicationVaultName(tenantId), secretName: appId.toLowerCase() });
      }
      const found = await Promise.all(secrets.map(consumersIn));
      const coverage = await dependencies.coverage({ limit: MAX_COVERAGE, offset: 0, cursor: undefined });
      const notSeen = coverage.items.map(({ scope, message }) => (scope === "*" ? message : `${scope}: ${message}`));
      const more = (coverage.total ?? 0) - coverage.items.length;
      return {
        consumers: found.flatMap(({ consumers }) => consumers),
        unread: found.flatMap(({ unread }) => unread),
        coverage: [
          ...found.flatMap(({ coverage }) => coverage),
          ...notSeen,
          ...(more > 0 ? [`${more} more could not be read: see GET /api/assets/dependencies/coverage.`] : []),
        ],
      };
    },

    currentProblem: async (consumer) => await kinds[consumer.kind as ConsumerKind]?.currentProblem?.(consumer),

    async refresh(consumer, wanted) {
      const { refresh } = kindOf(consumer);
      if (refresh === undefined) throw new Error(`A ${consumer.kind} can't be refreshed.`);
      return await refresh(consumer, wanted);
    },

    check: (consumer, version, since) => kindOf(consumer).check(consumer, version, since),
  };
}

/**
 * Values of `howOf`, sorted by how long a consumer may keep the old value: `willBreak` forever, `blind` for an unknown time,
 * `automatic` until it reads the new value, and `action` until the service refreshes it. If a resource uses a secret several
 * times, the first value that applies to one of its uses counts.
 */
const SLOWEST_FIRST = ["willBreak", "blind", "automatic", "action"] as const;

/** Returns a coverage text for consumers that use the whole vault: it is unknown whether they use this secret. */
function wholeVaultCoverage(uses: readonly FoundEdge[]): string[] {
  const found = uses.filter(({ edge }) => edge.name === undefined);
  const named = [...new Set(found.map(({ edge }) => `${edge.resource.kind} ${edge.resource.name}`))];
  if (named.length === 0) return [];
  const shown = named.slice(0, MAX_COVERAGE).join(", ");
  return [`These use the vault ${found[0]!.edge.vaultName}, and which of its secrets is not known: ${shown}.`];
}

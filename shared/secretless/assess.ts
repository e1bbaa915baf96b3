import { az } from "../platform/azure/cli.ts";
import {
  type Blocker,
  MAX_FEDERATED_CREDENTIALS,
  type Replacement,
  type SecretConsumer,
  type SecretReport,
  type Step,
} from "./report.ts";

/** Decides on one secret from what can replace it for each consumer. Makes no request. */

export type AssessedConsumer = SecretConsumer & { replacement: Replacement };

const canReplace = ({ replacement: { by } }: AssessedConsumer): boolean =>
  by === "managedIdentity" || by === "federatedCredential";

/**
 * Adds the blocker of the limit to each consumer for which the application has no room for another federated credential. One
 * credential is enough for all consumers that can share a managed identity.
 *
 * @param existing - Number of federated credentials. Undefined if they could not be read: then nothing is blocked.
 */
export function applyLimit(consumers: readonly AssessedConsumer[], existing: number | undefined): AssessedConsumer[] {
  if (existing === undefined) return [...consumers];
  let free = MAX_FEDERATED_CREDENTIALS - existing;
  let hasSharedIdentity = false;
  return consumers.map((consumer) => {
    const { by, federatedCredential } = consumer.replacement;
    if (federatedCredential === undefined || federatedCredential.exists) return consumer;
    if (by === "managedIdentity" && hasSharedIdentity) return consumer;
    if (free > 0) {
      free--;
      hasSharedIdentity ||= by === "managedIdentity";
      return consumer;
    }
    const message = `The application has ${existing} federated credentials, and the limit is ${MAX_FEDERATED_CREDENTIALS}. Delete unused ones, or give the consumer an application of its own.`;
    const blocker: Blocker = { code: "federatedCredentialLimit", message };
    const { blockers } = consumer.replacement;
    return {
      ...consumer,
      replacement: { ...consumer.replacement, by: "none", blockers: [...blockers, blocker], steps: [] },
    };
  });
}

/** Returns the verdict with its reason. `isComplete`: the vault secrets that store the secret could be searched. */
export function verdictOf(
  consumers: readonly AssessedConsumer[],
  {
    blockers,
    usage: { lastUsedAt, idleDays },
    isComplete,
  }: { blockers: readonly Blocker[]; usage: SecretReport["usage"]; isComplete: boolean },
): Pick<SecretReport, "verdict" | "reason"> {
  if (blockers.length > 0) return { verdict: "blocked", reason: blockers[0]!.message };
  if (!isComplete)
    return {
      verdict: "unknown",
      reason: "The vault secrets that store the secret could not be searched.",
    };
  if (consumers.length === 0) {
    if (idleDays !== undefined && idleDays > 0)
      return {
        verdict: "unknown",
        reason: `No consumer is known, and complete logs show no sign-in of the application for ${idleDays} days. The secret may be unused, or its users are in sources that were not searched.`,
      };
    const used = lastUsedAt === undefined ? "" : ` The last sign-in with it was on ${lastUsedAt.slice(0, 10)}.`;
    return { verdict: "unknown", reason: `No consumer of the secret is known.${used}` };
  }
  const replaceable = consumers.filter(canReplace).length;
  const entitled = consumers.filter(({ strength }) => strength === "entitled").length;
  const onlyAccess = entitled > 0 ? ` Of these, ${entitled} may read it, and whether they do is unknown.` : "";
  if (replaceable === consumers.length)
    return {
      verdict: "possible",
      reason: `Each known consumer (${consumers.length}) can sign in without the secret.${onlyAccess} Others are possible in sources that were not searched.`,
    };
  const first = consumers.find((one) => !canReplace(one))!;
  const why = `${first.name}: ${first.replacement.blockers[0]?.message ?? "nothing can replace the secret."}`;
  if (replaceable > 0)
    return {
      verdict: "partly",
      reason: `${replaceable} of ${consumers.length} known consumers can sign in without the secret. ${why}`,
    };
  return {
    verdict: consumers.every(({ replacement: { by } }) => by === "unknown") ? "unknown" : "blocked",
    reason: why,
  };
}

/** Days without use after which the plan removes the secret. Jobs can run once a month. */
const WATCH_DAYS = 35;

/**
 * Returns the steps for each consumer that can work without the secret, and the removal of the secret if all of them can.
 * `places`: the vault secrets that are proven to store this secret. Steps delete those of them that are `certain` now.
 */
export function planOf({
  appId,
  keyId,
  consumers,
  verdict,
  places,
}: Pick<SecretReport, "keyId" | "consumers" | "verdict" | "places"> & { appId: string }): (Step & {
  consumer?: string;
})[] {
  if (verdict !== "possible" && verdict !== "partly") return [];
  const steps = consumers
    .filter(canReplace)
    .flatMap(({ id, replacement }) => replacement.steps.map((step) => ({ ...step, consumer: id })));
  if (verdict === "partly")
    return [...steps, { text: "Keep the secret until the other consumers no longer need it. They have no steps yet." }];
  const copies = places.flatMap(({ assetId, confidence }) => (confidence === "certain" ? assetId : []));
  return [
    ...steps,
    {
      text: `Repeat this request until usage.idleDays is at least ${WATCH_DAYS}. If it is null, no log proves that the secret is unused: check the sign-in logs of Microsoft Entra.`,
    },
    {
      text: "Delete the client secret. Microsoft Entra can't restore it.",
      command: az("ad app credential delete", { id: appId, "key-id": keyId }),
    },
    ...copies.map((copy) => {
      const [vaultName = "", , ...name] = copy.split(".");
      return {
        text: `Delete the copy ${copy}. Test the match first: tags alone can be wrong, and others may read the vault secret for another purpose.`,
        command: az("keyvault secret delete", { "vault-name": vaultName, name: name.join(".") }),
      };
    }),
  ];
}

import { TableClient } from "@azure/data-tables";
import { appIdOf } from "simulated-cloud/company/applications.ts";
import { MatchRows, matchKey, matchPartition } from "../../shared/rotation/match.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";

/** The application of this company, and the vault secret that contains its credential. */
export const APPLICATION = "Outcomes";
export const SECRET = "outcomes-client-secret";
const ROTATION = `/api/automation/rotation/apps/${appIdOf(APPLICATION)}`;
const POLICY = `${ROTATION}/policy`;
const MATCH = { assetId: `kv-one.secret.${SECRET}` };

/**
 * Returns the entries for rotation policies and matches (vault secrets that contain an application's credential).
 * outcomes.test.ts sends their requests during faults of storage. If the outcome is unknown (`allowedOnRepeat`), it sends them
 * once more. `state` reads whether the change happened.
 */
export function rotationEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service, services, call, token, nextNumber, stateIfRemoved } = context;
  const newPolicy = () => ({ automatic: false, overlapDays: 1 + (nextNumber() % 90) });
  const removePolicy = () => service.call("DELETE", POLICY, { token: token() });
  /** Removes the match's proof and confirmation, and the counters that limit proofs. */
  async function resetMatch(): Promise<void> {
    const { tables } = services();
    await tables.remove(MatchRows, matchPartition(appIdOf(APPLICATION)), matchKey("kv-one", SECRET));
    const storage = service.azurite.connectionString();
    const limits = TableClient.fromConnectionString(storage, "RateLimits", { allowInsecureConnection: true });
    await limits.createTable();
    for await (const { partitionKey, rowKey } of limits.listEntities())
      await limits.deleteEntity(partitionKey!, rowKey!);
  }
  const readMatch = async (): Promise<{ evidence: string[]; verified: string }> =>
    (await call("GET", `${ROTATION}/matches`)).items.find(({ assetId }: typeof MATCH) => assetId === MATCH.assetId);
  const isConfirmed = async () => (await readMatch()).evidence.includes("confirmed");
  return [
    // Without and with an existing policy.
    ...[false, true].map(
      (isSet): ChangingEndpoint => ({
        endpoint: "PUT /api/automation/rotation/apps/{app_id}/policy",
        async prepare() {
          await (isSet ? call("PUT", POLICY, newPolicy()) : removePolicy());
          const body = newPolicy();
          return {
            method: "PUT",
            path: POLICY,
            options: { body },
            status: 200,
            allowedOnRepeat: [200],
            state: async () => {
              const { body: current } = await service.call("GET", POLICY, { token: token() });
              return current.overlapDays === body.overlapDays ? "done" : "undone";
            },
            event: "rotation.policyChanged",
          };
        },
      }),
    ),
    {
      endpoint: "DELETE /api/automation/rotation/apps/{app_id}/policy",
      async prepare() {
        await call("PUT", POLICY, newPolicy());
        return {
          method: "DELETE",
          path: POLICY,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(POLICY),
          event: "rotation.policyRemoved",
        };
      },
    },
    {
      endpoint: "POST /api/automation/rotation/apps/{app_id}/matches/verify",
      async prepare() {
        await resetMatch();
        return {
          method: "POST",
          path: `${ROTATION}/matches/verify`,
          options: { body: MATCH },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readMatch()).verified === "signIn" ? "done" : "undone"),
          event: "rotation.matchVerified",
        };
      },
    },
    // Confirms a match, and removes a confirmation.
    ...[true, false].map(
      (confirmed): ChangingEndpoint => ({
        endpoint: "POST /api/automation/rotation/apps/{app_id}/matches/confirm",
        async prepare() {
          await resetMatch();
          if (!confirmed) await call("POST", `${ROTATION}/matches/confirm`, { ...MATCH, confirmed: true });
          return {
            method: "POST",
            path: `${ROTATION}/matches/confirm`,
            options: { body: { ...MATCH, confirmed } },
            status: 200,
            allowedOnRepeat: [200],
            state: async () => ((await isConfirmed()) === confirmed ? "done" : "undone"),
            event: "rotation.matchConfirmed",
          };
        },
      }),
    ),
  ];
}

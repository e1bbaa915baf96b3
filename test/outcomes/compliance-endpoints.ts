import { DAY_MS } from "../../shared/platform/time.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";

/**
 * Returns the entries for exemptions and requested evaluations. outcomes.test.ts sends their requests during faults of storage, and
 * once more if the outcome is unknown (`allowedOnRepeat`). `state` reads whether the change happened.
 */
export function complianceEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service, call, token, stateIfExists, stateIfRemoved } = context;
  const exemption = (scope: object) => ({
    checkId: "secret-content-type",
    scope,
    category: "waiver",
    reason: "outcomes",
    until: new Date(Date.now() + DAY_MS).toISOString(),
  });
  const ASSET = { type: "asset", id: "kv-one.secret.db" };
  return [
    ...[ASSET, { type: "vault", id: "kv-one" }].map(
      (scope): ChangingEndpoint => ({
        endpoint: "POST /compliance/exemptions",
        async prepare() {
          const id = `secret-content-type.${scope.type}.${scope.id}`;
          await service.call("DELETE", `/compliance/exemptions/${id}`, { token: token() });
          return {
            method: "POST",
            path: "/compliance/exemptions",
            options: { body: exemption(scope) },
            status: 201,
            allowedOnRepeat: [201, 409],
            state: stateIfExists(`/compliance/exemptions/${id}`),
            event: "compliance.exemptionCreated",
          };
        },
      }),
    ),
    ...[ASSET, { type: "vault", id: "kv-one" }].map(
      (scope): ChangingEndpoint => ({
        endpoint: "DELETE /compliance/exemptions/{exemption_id}",
        async prepare() {
          const path = `/compliance/exemptions/secret-content-type.${scope.type}.${scope.id}`;
          await service.call("DELETE", path, { token: token() });
          await call("POST", "/compliance/exemptions", exemption(scope));
          return {
            method: "DELETE",
            path,
            status: 200,
            allowedOnRepeat: [200, 404],
            state: stateIfRemoved(path),
            event: "compliance.exemptionRemoved",
          };
        },
      }),
    ),
    {
      endpoint: "POST /compliance/evaluate",
      async prepare() {
        const readLastEvaluationId = async () => (await call("GET", "/compliance/score")).evaluation?.evaluationId;
        // An evaluation also writes what changed since the last one. After this call, each evaluation makes the same writes.
        await call("POST", "/compliance/evaluate");
        const idBefore = await readLastEvaluationId();
        return {
          method: "POST",
          path: "/compliance/evaluate",
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await readLastEvaluationId()) === idBefore ? "undone" : "done"),
          event: "compliance.evaluationRequested",
        };
      },
    },
  ];
}

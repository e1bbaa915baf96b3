import { DAY_MS } from "../../shared/platform/time.ts";
import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";
import { createHeldDelivery, createRuleWithAlert, mailRule, storedRule } from "./stored-alerts.ts";

/**
 * Returns the entries for alert rules: `prepare` creates what a request needs, and outcomes.test.ts sends the request during a
 * fault of storage. `state` then reads whether the change happened (`begun`: a repeated request completes it), and
 * `allowedOnRepeat` are the statuses of a repeated request.
 */
export function ruleEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { service, call, uniqueName, stateIfRemoved } = context;
  const webhookRule = (name: string) => ({
    name,
    alertType: "expired",
    deliveryMethod: "webhook",
    webhookUrl: service.cloud.controlUrl.replace("/control", "/sink/outcomes"),
  });
  const stateOfRuleNamed = async (name: string) =>
    (await call("GET", "/alerts/rules?limit=1000")).items.some((rule: { name: string }) => rule.name === name)
      ? ("done" as const)
      : ("undone" as const);
  return [
    {
      endpoint: "POST /alerts/rules",
      async prepare() {
        const body = webhookRule(uniqueName("created"));
        return {
          method: "POST",
          path: "/alerts/rules",
          options: { body },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: () => stateOfRuleNamed(body.name),
          event: "alertRule.created",
        };
      },
    },
    {
      endpoint: "PUT /alerts/rules/{rule_id}",
      async prepare() {
        const { id } = await call("POST", "/alerts/rules", webhookRule(uniqueName("to change")));
        const name = uniqueName("changed");
        return {
          method: "PUT",
          path: `/alerts/rules/${id}`,
          options: { body: { name, webhookUrl: `${webhookRule("").webhookUrl}-2` } },
          status: 200,
          allowedOnRepeat: [200],
          state: () => stateOfRuleNamed(name),
          event: "alertRule.changed",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/rules/{rule_id}",
      async prepare() {
        const { id } = await call("POST", "/alerts/rules", webhookRule(uniqueName("to delete")));
        return {
          method: "DELETE",
          path: `/alerts/rules/${id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(`/alerts/rules/${id}`),
          event: "alertRule.deleted",
        };
      },
    },
    {
      endpoint: "POST /alerts/rules/{rule_id}/rotate-secret",
      async prepare() {
        const { id } = await call("POST", "/alerts/rules", webhookRule(uniqueName("to rotate")));
        const versionBefore = (await storedRule(context, id))!.webhookVersion;
        return {
          method: "POST",
          path: `/alerts/rules/${id}/rotate-secret`,
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await storedRule(context, id))!.webhookVersion === versionBefore ? "undone" : "done"),
          event: "alertRule.secretRotated",
        };
      },
    },
    {
      endpoint: "POST /alerts/rules/{rule_id}/test",
      async prepare() {
        const { id } = await call("POST", "/alerts/rules", webhookRule(uniqueName("to test")));
        return {
          method: "POST",
          path: `/alerts/rules/${id}/test`,
          status: 200,
          allowedOnRepeat: [200],
          async state() {
            const { items } = await call("GET", `/alerts/history?rule_id=${id}`);
            if (items.length === 0) return "undone";
            // The delivery itself contains what was sent. The list is updated by the next run of the rules at the latest.
            const entries = await Promise.all(
              items.map((item: { id: string }) => call("GET", `/alerts/history/${item.id}`)),
            );
            const sent = entries.some((entry) => entry.recipients[0].status === "delivered");
            return sent ? "done" : "begun";
          },
          event: "alert.sent",
          belongsToRequest: ({ details }) => details?.ruleId === id,
        };
      },
    },
  ];
}

/** Returns the entries for addresses of owners, and for snoozes, which pause the alerts of a rule about one asset. */
export function snoozeEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { call, uniqueName } = context;
  return [
    {
      endpoint: "PUT /alerts/owners",
      async prepare() {
        const owner = uniqueName("owner");
        return {
          method: "PUT",
          path: "/alerts/owners",
          options: { body: { owners: [{ owner, address: "owner@acme.example" }] } },
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", "/alerts/owners")).items[0]?.owner === owner ? "done" : "undone"),
          event: "alertOwners.changed",
        };
      },
    },
    {
      endpoint: "POST /alerts/snoozes",
      async prepare() {
        const { id } = await call("POST", "/alerts/rules", mailRule(uniqueName("to snooze")));
        const until = new Date(Date.now() + DAY_MS).toISOString();
        return {
          method: "POST",
          path: "/alerts/snoozes",
          options: { body: { ruleId: id, assetId: "kv-one.secret.db", reason: "outcomes", until } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: async () => ((await call("GET", `/alerts/snoozes?rule_id=${id}`)).total === 1 ? "done" : "undone"),
          event: "alertSnooze.created",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/snoozes/{snooze_id}",
      async prepare() {
        const { id } = await call("POST", "/alerts/rules", mailRule(uniqueName("to wake")));
        const until = new Date(Date.now() + DAY_MS).toISOString();
        const snooze = { ruleId: id, assetId: "kv-one.secret.db", reason: "outcomes", until };
        const created = await call("POST", "/alerts/snoozes", snooze);
        return {
          method: "DELETE",
          path: `/alerts/snoozes/${created.id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: async () => ((await call("GET", `/alerts/snoozes?rule_id=${id}`)).total === 0 ? "done" : "undone"),
          event: "alertSnooze.deleted",
        };
      },
    },
  ];
}

/** Returns the entries for decisions on alerts that are held after a restore (`inDoubt`), and for acknowledgments. */
export function sentAlertEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { call, uniqueName } = context;
  const stateOfAcknowledgements = (ruleId: string, expectedTotal: number) => async () =>
    (await call("GET", `/alerts/acknowledgements?rule_id=${ruleId}`)).total === expectedTotal
      ? ("done" as const)
      : ("undone" as const);
  const stateOfHeld = (deliveryId: string) => async () =>
    (await call("GET", `/alerts/history/${deliveryId}`)).status === "inDoubt" ? ("undone" as const) : ("done" as const);
  return [
    ...(["send", "drop"] as const).map(
      (decision): ChangingEndpoint => ({
        endpoint: `POST /alerts/history/{entry_id}/${decision}`,
        async prepare() {
          const deliveryId = await createHeldDelivery(context);
          return {
            method: "POST",
            path: `/alerts/history/${deliveryId}/${decision}`,
            status: 200,
            allowedOnRepeat: [200, 409],
            state: stateOfHeld(deliveryId),
            event: decision === "send" ? "alert.heldSent" : "alert.heldDropped",
          };
        },
      }),
    ),
    {
      endpoint: "POST /alerts/acknowledgements",
      async prepare() {
        const id = await createRuleWithAlert(context, uniqueName("to acknowledge"));
        return {
          method: "POST",
          path: "/alerts/acknowledgements",
          options: { body: { ruleId: id, itemId: "kv-one.secret.db", note: "outcomes" } },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: stateOfAcknowledgements(id, 1),
          event: "alert.acknowledged",
        };
      },
    },
    {
      endpoint: "DELETE /alerts/acknowledgements/{acknowledgement_id}",
      async prepare() {
        const id = await createRuleWithAlert(context, uniqueName("to escalate"));
        const created = await call("POST", "/alerts/acknowledgements", { ruleId: id, itemId: "kv-one.secret.db" });
        return {
          method: "DELETE",
          path: `/alerts/acknowledgements/${created.items[0].id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateOfAcknowledgements(id, 0),
          event: "alert.acknowledgementRemoved",
        };
      },
    },
  ];
}

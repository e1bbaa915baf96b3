import type { ReceivedRequest } from "simulated-cloud/webhook-sink.ts";
import { ADMIN, Service } from "../../../test/support/service.ts";
import { caseRunner, type Part } from "../part.ts";
import { runPython } from "../python.ts";

// Webhooks of alert rules, verified by the Python library of Standard Webhooks and parsed by the SDK of CloudEvents.

/** A name that a person chose in Azure, with characters of several scripts and of markup. */
const TAG = 'Zoë "O\'Neil" <b>&amp; 株式会社';

/** Output of python/parse_event.py. */
interface Event {
  id: string;
  source: string;
  type: string;
  specversion: string;
  subject: string;
  time: string;
  datacontenttype: string;
  // biome-ignore lint/suspicious/noExplicitAny: the content of alerts, of which the cases read a few members
  data: any;
}

const verify = (secret: string, { headers, body }: Pick<ReceivedRequest, "headers" | "body">) =>
  runPython("verify_webhook.py", { secret, headers, body });
const parse = async ({ headers, body }: Pick<ReceivedRequest, "headers" | "body">) =>
  JSON.parse(await runPython("parse_event.py", { headers, body })) as Event;

export const part: Part = {
  name: "webhooks",
  description: "Standard Webhooks verifies the webhooks of alert rules, the CloudEvents SDK parses them",
  programs: ["standardwebhooks", "cloudevents"],
  needs: ["python"],
  async *run() {
    const secrets = [{ name: "old", expiresInDays: -2, tags: { owner: TAG } }];
    const service = await Service.start({
      company: { subscriptions: [{ name: "Main", vaults: [{ name: "kv-a", secrets }] }] },
      env: { ALLOW_PRIVATE_WEBHOOK_ADDRESSES: "true" },
    });
    try {
      await service.scan();
      const created = await service.admin("POST", "/alerts/rules", {
        name: "expired",
        alertType: "expired",
        deliveryMethod: "webhook",
        webhookUrl: service.cloud.controlUrl.replace("/control", "/sink/conformance"),
      });
      if (created.status !== 201) throw new Error(`The rule was answered with ${created.status}: ${created.text}`);
      const { id, webhookSecret } = created.body;
      /** Sends the test message of the rule, and returns it as the receiver got it. */
      const send = async () => {
        await service.admin("POST", `/alerts/rules/${id}/test`);
        return service.cloud.control.sinkRequests("conformance").at(-1)!;
      };
      const testMessage = await send();
      await fetch(`${service.url}/__host/timers/evaluateAlerts`, { method: "POST" });
      await service.waitUntilIdle();
      const alert = service.cloud.control.sinkRequests("conformance").at(-1)!;

      const runSignatureCase = caseRunner("standardwebhooks");
      yield await runSignatureCase("test message", "verified", () => verify(webhookSecret, testMessage));
      yield await runSignatureCase("alert with names in several scripts", "verified", () =>
        verify(webhookSecret, alert),
      );
      const noMatch = /^error: .*No matching signature/;
      yield await runSignatureCase("one byte more", noMatch, () =>
        verify(webhookSecret, { ...alert, body: `${alert.body} ` }),
      );
      yield await runSignatureCase("another message id", noMatch, () =>
        verify(webhookSecret, { ...alert, headers: { ...alert.headers, "webhook-id": "another" } }),
      );
      // Standard Webhooks accepts a difference of five minutes.
      yield await runSignatureCase("the time is six minutes ago", /^error: .*timestamp too old/, () => {
        const time = String(Number(alert.headers["webhook-timestamp"]) - 360);
        return verify(webhookSecret, { ...alert, headers: { ...alert.headers, "webhook-timestamp": time } });
      });
      yield await runSignatureCase("key rotated: the new and the old key", "verified, verified", async () => {
        const rule = await service.admin("GET", `/alerts/rules/${id}`);
        const rotated = await service.call("POST", `/alerts/rules/${id}/rotate-secret`, {
          token: await service.signIn(ADMIN),
          headers: { "If-Match": rule.headers.get("etag")! },
        });
        const message = await send();
        return `${await verify(rotated.body.webhookSecret, message)}, ${await verify(webhookSecret, message)}`;
      });

      const runEventCase = caseRunner("cloudevents");
      yield await runEventCase(
        "content type",
        "application/cloudevents+json",
        async () => alert.headers["content-type"]!,
      );
      yield await runEventCase("test message", "lifecycle.alert.expired 1.0, a test", async () => {
        const { type, specversion, data } = await parse(testMessage);
        return `${type} ${specversion}, ${data.test ? "a test" : "no test"}`;
      });
      yield await runEventCase("alert: attributes", "all as sent", async () => {
        const event = await parse(alert);
        const expected = {
          id: alert.headers["webhook-id"],
          source: "urn:credential-lifecycle",
          type: "lifecycle.alert.expired",
          specversion: "1.0",
          subject: `alerts/rules/${id}`,
          datacontenttype: "application/json",
        };
        const differing = Object.entries(expected).filter(([name, value]) => event[name as keyof Event] !== value);
        if (Number.isNaN(Date.parse(event.time))) return `time: ${event.time}`;
        return differing.map(([name]) => `${name}: ${event[name as keyof Event]}`).join(", ") || "all as sent";
      });
      yield await runEventCase("alert: names in several scripts", `old of ${TAG}`, async () => {
        const [item] = (await parse(alert)).data.items;
        return `${item.name} of ${item.owner}`;
      });
      yield await runEventCase("an event without its source is rejected", /^error: .*source/, () => {
        const { source: _, ...event } = JSON.parse(alert.body);
        return parse({ ...alert, body: JSON.stringify(event) }).then(JSON.stringify);
      });
    } finally {
      await service.stop();
    }
  },
};

import type { ChangingEndpoint } from "./changing-endpoint.ts";
import type { EndpointContext } from "./endpoint-context.ts";

const STREAMS = "/audit/streams";

/**
 * Returns the entries for audit streams. outcomes.test.ts sends their requests during faults of storage, and once more if the outcome
 * is unknown (`allowedOnRepeat`). `state` reads whether the change happened.
 */
export function auditStreamEndpoints(context: EndpointContext): ChangingEndpoint[] {
  const { call, uniqueName, stateIfRemoved } = context;
  const hub = (name: string) => {
    // The simulated cloud serves all hosts at one port, which this address contains.
    const { port } = new URL(context.service.environment.SERVICE_KEY_VAULT_URL!);
    const endpoint = `https://evhns-lifecycle.servicebus.localhost:${port}`;
    return { name, destination: "eventHubs", endpoint, eventHub: "audit", enabled: false };
  };
  const webhook = (name: string) => ({
    name,
    destination: "webhook",
    webhookUrl: "https://siem.acme.example/",
    enabled: false,
  });
  const names = async () => (await call("GET", STREAMS)).items.map(({ name }: { name: string }) => name) as string[];
  const stateOfName = async (name: string) =>
    (await names()).includes(name) ? ("done" as const) : ("undone" as const);
  /** Creates a stream. Deletes the others first, because their number is limited. */
  async function create(body: object): Promise<{ id: string; updatedAt: string }> {
    for (const { id } of (await call("GET", STREAMS)).items) await call("DELETE", `${STREAMS}/${id}`);
    return await call("POST", STREAMS, body);
  }
  return [
    {
      endpoint: "POST /audit/streams",
      async prepare() {
        await create(hub(uniqueName("stream")));
        const body = webhook(uniqueName("created"));
        return {
          method: "POST",
          path: STREAMS,
          options: { body },
          status: 201,
          allowedOnRepeat: [201, 409],
          state: () => stateOfName(body.name),
          event: "auditStream.created",
        };
      },
    },
    {
      endpoint: "PUT /audit/streams/{stream_id}",
      async prepare() {
        const { id } = await create(webhook(uniqueName("to change")));
        const name = uniqueName("changed");
        return {
          method: "PUT",
          path: `${STREAMS}/${id}`,
          options: { body: { name, webhookUrl: "https://siem.acme.example/other" } },
          status: 200,
          allowedOnRepeat: [200],
          state: () => stateOfName(name),
          event: "auditStream.changed",
        };
      },
    },
    {
      endpoint: "DELETE /audit/streams/{stream_id}",
      async prepare() {
        const { id } = await create(webhook(uniqueName("to delete")));
        return {
          method: "DELETE",
          path: `${STREAMS}/${id}`,
          status: 200,
          allowedOnRepeat: [200, 404],
          state: stateIfRemoved(`${STREAMS}/${id}`),
          event: "auditStream.deleted",
        };
      },
    },
    {
      endpoint: "POST /audit/streams/{stream_id}/rotate-secret",
      async prepare() {
        const { id, updatedAt } = await create(webhook(uniqueName("to rotate")));
        return {
          method: "POST",
          path: `${STREAMS}/${id}/rotate-secret`,
          status: 200,
          allowedOnRepeat: [200],
          state: async () => ((await call("GET", `${STREAMS}/${id}`)).updatedAt === updatedAt ? "undone" : "done"),
          event: "auditStream.secretRotated",
        };
      },
    },
  ];
}

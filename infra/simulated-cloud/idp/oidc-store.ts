import type { Adapter, AdapterPayload } from "oidc-provider";

type Payloads = Map<string, AdapterPayload>;

/** Stores the provider's sessions, sign-ins in progress, codes and tokens in memory. */
export function oidcStore(): (model: string) => Adapter {
  const models = new Map<string, Payloads>();
  const payloadsOf = (model: string): Payloads => {
    const payloads = models.get(model) ?? new Map<string, AdapterPayload>();
    models.set(model, payloads);
    return payloads;
  };
  return (model) => {
    const payloads = payloadsOf(model);
    const first = (member: "uid" | "userCode", value: string) =>
      [...payloads.values()].find((payload) => payload[member] === value);
    return {
      async upsert(id, payload) {
        payloads.set(id, payload);
      },
      find: async (id) => payloads.get(id),
      findByUid: async (uid) => first("uid", uid),
      findByUserCode: async (userCode) => first("userCode", userCode),
      async consume(id) {
        const payload = payloads.get(id);
        if (payload !== undefined) payload.consumed = Math.floor(Date.now() / 1000);
      },
      async destroy(id) {
        payloads.delete(id);
      },
      async revokeByGrantId(grantId) {
        for (const [id, payload] of payloads) if (payload.grantId === grantId) payloads.delete(id);
      },
    };
  };
}

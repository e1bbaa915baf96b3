import type { Adapter, AdapterPayload } from "oidc-provider";

type Kept = Map<string, AdapterPayload>;

/** Stores the provider's sessions, sign-ins in progress, codes and tokens in memory. */
export function oidcStore(): (model: string) => Adapter {
  const models = new Map<string, Kept>();
  const keptOf = (model: string): Kept => {
    const kept = models.get(model) ?? new Map<string, AdapterPayload>();
    models.set(model, kept);
    return kept;
  };
  return (model) => {
    const kept = keptOf(model);
    const first = (member: "uid" | "userCode", value: string) =>
      [...kept.values()].find((payload) => payload[member] === value);
    return {
      async upsert(id, payload) {
        kept.set(id, payload);
      },
      find: async (id) => kept.get(id),
      findByUid: async (uid) => first("uid", uid),
      findByUserCode: async (userCode) => first("userCode", userCode),
      async consume(id) {
        const payload = kept.get(id);
        if (payload !== undefined) payload.consumed = Math.floor(Date.now() / 1000);
      },
      async destroy(id) {
        kept.delete(id);
      },
      async revokeByGrantId(grantId) {
        for (const [id, payload] of kept) if (payload.grantId === grantId) kept.delete(id);
      },
    };
  };
}

import type { References } from "../dependencies/references.ts";
import type { EdgeRecord } from "../dependencies/rows.ts";
import type { AutomationSource, PendingNotice } from "./automation-events.ts";

type NoticeText = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/**
 * Creates the source of events about Key Vault references (of App Service settings, for example) that no longer or never
 * resolved. A reference is an edge of the dependency graph, from the app to the secret. `notice` reads the current state of the
 * reference. If the reference is deleted or resolves now, `notice` returns undefined and nothing is sent.
 */
export function createReferenceNotices(references: Pick<References, "unresolved">): AutomationSource {
  return {
    async *notices(type, from) {
      if (type !== "referenceUnresolved") return;
      for await (const page of references.unresolved(from)) {
        yield page.map(({ unresolved: { id, at }, currentEdge }): PendingNotice => {
          const notice = async () => {
            const edge = await currentEdge();
            return edge && textOf(edge);
          };
          return { id: `reference.${id}`, at, notice };
        });
      }
    },
  };
}

function textOf({ resource, vaultName, name, evidence, state }: EdgeRecord): NoticeText {
  const secretText = name === undefined ? vaultName : `${vaultName}/${name}`;
  return {
    vaultName,
    title: `${resource.name} to ${secretText}`,
    urgency: "critical",
    what: "is a Key Vault reference that does not resolve",
    why: `${evidence} of ${resource.name} (${resource.kind}): ${state?.status ?? "unresolved"}.`,
    done: "No changes were made.",
    safe: "The secret is unchanged.",
    next: `Check that the secret exists in ${vaultName}, that the reference has its name, and that the app's identity can read secrets there.`,
  };
}

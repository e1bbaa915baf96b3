import type { References } from "../dependencies/references.ts";
import type { EdgeRecord } from "../dependencies/rows.ts";
import type { AutomationSource, PendingNotice } from "./automation.ts";

type Words = NonNullable<Awaited<ReturnType<PendingNotice["notice"]>>>;

/** What alerts tell of references: those that a platform could follow before, or never saw before, and can't follow now. */
export function createReferenceNotices(references: Pick<References, "unresolved">): AutomationSource {
  return {
    async *notices(type, from) {
      if (type !== "referenceUnresolved") return;
      for await (const page of references.unresolved(from)) {
        yield page.map(({ unresolved: { id, at }, still }): PendingNotice => {
          const notice = async () => {
            const edge = await still();
            return edge && wordsOf(edge);
          };
          return { id: `reference.${id}`, at, notice };
        });
      }
    },
  };
}

function wordsOf({ resource, vaultName, name, evidence, state }: EdgeRecord): Words {
  const place = name === undefined ? vaultName : `${vaultName}/${name}`;
  return {
    vaultName,
    title: `${resource.name} to ${place}`,
    urgency: "critical",
    what: "is a reference that the platform can't follow",
    why: `${evidence} of ${resource.name} (${resource.kind}): ${state?.status ?? "unresolved"}.`,
    done: "Nothing was changed.",
    safe: "The secret is as it was.",
    next: `See that the secret is in ${vaultName}, that the reference names it, and that the app's identity may read it.`,
  };
}

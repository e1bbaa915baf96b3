import type { Schemas } from "../../api/client.ts";
import { ChoiceField, LongField, TextField } from "../../parts/fields.tsx";
import { chosen, typed } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";

const SCOPES = ["asset", "vault", "subscription", "all"] as const;
const CATEGORIES = { waiver: "The risk is taken", mitigated: "It is mended in another way" } as const;

/** Takes a finding out of the score for a while, with a reason that is kept. */
export function Exempt({ violation }: { violation: Schemas["Violation"] }) {
  if (violation.exempted) return null;
  const { checkId, resourceType, resourceId, vaultName, subscriptionId } = violation;
  const ids = { asset: resourceId, vault: vaultName, subscription: subscriptionId, all: null };
  const scopes = SCOPES.filter(
    (scope) => scope === "all" || (ids[scope] && !(scope === "asset" && resourceType === "vault")),
  );
  return (
    <Operate
      operation="createExemption"
      title="Exempt"
      action="Exempt"
      submit={(form, create) => {
        const type = chosen(form, "scope", SCOPES);
        return create({
          body: {
            checkId,
            scope: { type, ...(ids[type] !== null && { id: ids[type] }) },
            category: chosen(form, "category", ["waiver", "mitigated"]),
            reason: typed(form, "reason"),
            until: typed(form, "until"),
          },
        });
      }}
    >
      <ChoiceField name="scope" member="scope.id" label="For" options={scopes} />
      <ChoiceField name="category" label="Why it counts no longer" options={CATEGORIES} />
      <LongField name="reason" label="Reason" required />
      <TextField name="until" label="Until" type="date" required />
    </Operate>
  );
}

import type { Schemas } from "../../api/client.ts";
import { ChoiceField, LongField, TextField } from "../../parts/fields.tsx";
import { chosen, typed } from "../../parts/form-dialog.tsx";
import { Operate } from "../../parts/operate.tsx";

const SCOPES = ["asset", "vault", "subscription", "all"] as const;
const CATEGORIES = { waiver: "Risk accepted", mitigated: "Mitigated in another way" } as const;
const SCOPE_TEXTS = {
  asset: "This asset",
  vault: "This vault",
  subscription: "This subscription",
  all: "All resources",
};

/** Exempts a violation from the score until a date. */
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
      <ChoiceField
        name="scope"
        member="scope.id"
        label="Scope"
        options={Object.fromEntries(scopes.map((scope) => [scope, SCOPE_TEXTS[scope]]))}
      />
      <ChoiceField name="category" label="Category" options={CATEGORIES} />
      <LongField name="reason" label="Reason" required />
      <TextField name="until" label="Expires" type="date" required />
    </Operate>
  );
}

import { Text } from "@fluentui/react-components";
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
  all: "All assets and vaults",
};

/** The button of a violation that exempts its check, in a selected scope, from the score until a date. */
export function Exempt({ violation }: { violation: Schemas["Violation"] }) {
  if (violation.exempted) return null;
  const { checkId, resourceType, resourceId, vaultName, subscriptionId } = violation;
  // Credentials outside key vaults have neither a vault nor a subscription.
  const ids = { asset: resourceId, vault: vaultName, subscription: subscriptionId, all: null };
  // For a violation of a vault itself, the scopes "asset" and "vault" would be the same.
  const scopes = SCOPES.filter(
    (scope) => scope === "all" || (ids[scope] && !(scope === "asset" && resourceType === "vault")),
  );
  return (
    <Operate
      operation="createExemption"
      title="Exempt violation"
      action="Create exemption"
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
      <Text>
        Violations of this check in the scope no longer lower the compliance score until the exemption expires. You can
        remove the exemption earlier.
      </Text>
      <ChoiceField
        name="scope"
        member="scope.id"
        label="Scope"
        options={Object.fromEntries(scopes.map((scope) => [scope, SCOPE_TEXTS[scope]]))}
      />
      <ChoiceField name="category" label="Category" options={CATEGORIES} />
      <LongField name="reason" label="Reason" hint="Example: The system is shut down next month" required />
      <TextField name="until" label="Expires" hint="Last day of the exemption (UTC)" type="date" required />
    </Operate>
  );
}

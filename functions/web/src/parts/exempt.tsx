import { Text } from "@fluentui/react-components";
import type { Schemas } from "../api/client.ts";
import { ChoiceField, LongField, TextField } from "./fields.tsx";
import { fieldChoice, fieldText } from "./form-dialog.tsx";
import { Operate } from "./operate.tsx";

const SCOPES = ["asset", "vault", "subscription", "all"] as const;
const CATEGORIES = { waiver: "Risk accepted", mitigated: "Mitigated in another way" } as const;
const SCOPE_TEXTS = {
  asset: "This asset",
  vault: "This vault",
  subscription: "This subscription",
  all: "All assets and vaults",
};

/**
 * The button that exempts a violation of a resource, in a selected scope, from the score until a date. Renders nothing if all
 * violations are exempt.
 *
 * @param props.violations - Violations of one resource. If several are not exempt, the form asks for one of them.
 * @param props.about - The resource, for the name of the button outside of a violation's row.
 */
export function Exempt({ violations, about }: { violations: Schemas["Violation"][]; about?: string }) {
  const notExempt = violations.filter(({ exempted }) => !exempted);
  const [first] = notExempt;
  if (first === undefined) return null;
  const { resourceType, resourceId, vaultName, subscriptionId } = first;
  // Credentials outside key vaults have neither a vault nor a subscription.
  const ids = { asset: resourceId, vault: vaultName, subscription: subscriptionId, all: null };
  // For a violation of a vault itself, the scopes "asset" and "vault" would be the same.
  const scopes = SCOPES.filter(
    (scope) => scope === "all" || (ids[scope] && !(scope === "asset" && resourceType === "vault")),
  );
  return (
    <Operate
      operation="createExemption"
      title="Exempt from check"
      {...(about !== undefined && { about })}
      action="Create exemption"
      submit={(form, create) => {
        const type = fieldChoice(form, "scope", SCOPES);
        return create({
          body: {
            checkId: fieldText(form, "checkId") || first.checkId,
            scope: { type, ...(ids[type] !== null && { id: ids[type] }) },
            category: fieldChoice(form, "category", ["waiver", "mitigated"]),
            reason: fieldText(form, "reason"),
            until: fieldText(form, "until"),
          },
        });
      }}
    >
      <Text>
        Violations of this check in the scope no longer lower the compliance score until the exemption expires. You can
        remove the exemption earlier.
      </Text>
      {notExempt.length > 1 && (
        <ChoiceField
          name="checkId"
          label="Failed check"
          options={Object.fromEntries(notExempt.map(({ checkId, title }) => [checkId, title]))}
        />
      )}
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

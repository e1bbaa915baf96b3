import { Link, Text } from "@fluentui/react-components";
import { api, type Schemas } from "../../api/client.ts";
import { createHref } from "../../parts/address.ts";
import { titleOfId, UNNAMED_CREDENTIAL } from "../../parts/asset-name.ts";
import { ChoiceField } from "../../parts/fields.tsx";
import { fieldText, withoutEmpty } from "../../parts/form-dialog.tsx";
import { Instant } from "../../parts/instant.tsx";
import { Operate } from "../../parts/operate.tsx";
import { BY_CURSOR, type Column, PagedTable } from "../../parts/paged-table.tsx";
import { SnoozeFields, snoozeOf } from "../../parts/snooze-fields.tsx";
import { FilterFields, filtersOf } from "./filter-fields.tsx";
import { filtersText, SNOOZE_FILTERS } from "./rule-texts.ts";

/** The card of the Alerts page with the active snoozes, and the form that creates one by filter. */
export function Snoozes() {
  const list = api.useInfiniteQuery("get", "/alerts/snoozes", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const rules = api.useInfiniteQuery("get", "/alerts/rules", { params: { query: { limit: 100 } } }, BY_CURSOR);
  const names = Object.fromEntries(
    (rules.data?.pages ?? []).flatMap(({ items }) => items.map(({ id, name }) => [id, name])),
  );
  const columns: Column<Schemas["AlertSnooze"]>[] = [
    {
      title: "Snoozed",
      cell: ({ assetId, filters }) =>
        assetId === null ? (
          subjectOf(assetId, filters)
        ) : (
          <Link href={createHref(`/inventory/${encodeURIComponent(assetId)}`)}>
            {titleOfId(assetId, UNNAMED_CREDENTIAL)}
          </Link>
        ),
    },
    { title: "Rule", cell: ({ ruleId }) => (ruleId === null ? "All rules" : (names[ruleId] ?? ruleId)) },
    { title: "Reason", cell: ({ reason }) => reason },
    { title: "Until", cell: ({ until }) => <Instant at={until} /> },
    { title: "Created by", cell: ({ createdBy }) => createdBy },
    {
      title: "",
      cell: ({ id, assetId, filters }) => (
        <Operate
          operation="deleteAlertSnooze"
          title="End snooze"
          about={subjectOf(assetId, filters)}
          action="End snooze"
          submit={(_, end) => end({ params: { path: { snooze_id: id } } })}
        >
          <Text>Alert rules notify about {subjectOf(assetId, filters)} again from now on.</Text>
        </Operate>
      ),
    },
  ];
  return (
    <>
      <div>
        <SnoozeByFilter names={names} />
        <Text block>
          To snooze one asset, select Snooze on its page. <Link href={createHref("/inventory")}>Find the asset</Link>
        </Text>
      </div>
      <PagedTable
        of={list}
        columns={columns}
        keyOf={({ id }) => id}
        label="Snoozes"
        empty="No active snoozes. Snooze an asset to pause its notifications until a date, for example during maintenance."
      />
    </>
  );
}

/** Returns the scope of the snooze: one asset, or everything that matches the filters. The API returns no name of a credential. */
const subjectOf = (assetId: string | null, filters: Schemas["AlertSnooze"]["filters"]): string =>
  assetId === null ? filtersText(filters) || "Everything" : titleOfId(assetId, UNNAMED_CREDENTIAL);

/** Names of the alert rules by ID. */
type Names = Record<string, string>;

/** The button that snoozes all assets that match filters, for one rule or for all rules. */
function SnoozeByFilter({ names }: { names: Names }) {
  return (
    <Operate
      operation="createAlertSnooze"
      title="Snooze several assets"
      action="Snooze matching assets"
      submit={(form, create) =>
        create({
          body: { ...snoozeOf(form), filters: filtersOf(form), ...withoutEmpty({ ruleId: fieldText(form, "ruleId") }) },
        })
      }
    >
      <Text>
        Until the date, no notifications are sent about assets that match all fields. Empty fields match everything. If
        all fields are empty, all notifications of the selected rules are paused.
      </Text>
      <FilterFields of={SNOOZE_FILTERS} />
      <ChoiceField name="ruleId" label="Alert rule" options={{ "": "All rules", ...names }} />
      <SnoozeFields />
    </Operate>
  );
}

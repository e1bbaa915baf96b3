import { Link, makeStyles, Text, tokens } from "@fluentui/react-components";
import { createHref } from "../parts/address.ts";
import { subviewOf, viewOf } from "../views/views.ts";

const useStyles = makeStyles({
  list: {
    display: "flex",
    flexWrap: "wrap",
    gap: tokens.spacingHorizontalXS,
    margin: `0 0 ${tokens.spacingVerticalS}`,
    padding: 0,
    listStyleType: "none",
  },
});

/** The breadcrumb of a view of one object, such as "Monitor / Alerts / Alert rule". Renders nothing for other views. */
export function Breadcrumbs({ pathname }: { pathname: string }) {
  const styles = useStyles();
  const parent = viewOf(pathname);
  const subview = subviewOf(pathname);
  if (!parent || !subview) return null;
  return (
    <nav aria-label="Breadcrumb">
      <ol className={styles.list}>
        <li>
          <Text size={200}>{parent.group} /</Text>
        </li>
        <li>
          <Link href={createHref(parent.path)}>
            <Text size={200}>{parent.title}</Text>
          </Link>
          <Text size={200}> /</Text>
        </li>
        <li aria-current="page">
          <Text size={200}>{subview.kind}</Text>
        </li>
      </ol>
    </nav>
  );
}

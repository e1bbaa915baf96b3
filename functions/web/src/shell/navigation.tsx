import { makeStyles, NavDrawer, NavDrawerBody, NavItem, NavSectionHeader, tokens } from "@fluentui/react-components";
import { Fragment } from "react";
import { type Operation, useRoleAllows } from "../api/access.ts";
import { createHref } from "../parts/address.ts";
import { useLocation } from "../parts/router.tsx";
import { GROUPS, VIEWS, viewOf } from "../views/views.ts";
import { type Attention, useAttention } from "./attention.ts";
import { useStyles } from "./styles.ts";

const useItemStyles = makeStyles({
  // The count is generated content without alternative text: the link's description names the counted objects.
  counted: {
    // Fluent UI marks the selected item with "::after".
    "::before": {
      order: 1,
      content: ["attr(data-count)", 'attr(data-count) / ""'],
      marginInlineStart: "auto",
      paddingInline: tokens.spacingHorizontalXS,
      borderRadius: tokens.borderRadiusCircular,
      fontSize: tokens.fontSizeBase200,
      // The number and its unit stay on one line beside a long title.
      whiteSpace: "nowrap",
      fontWeight: tokens.fontWeightSemibold,
      // White on red in both themes, because the count is an alarm. The tinted colors are weak in the dark theme.
      color: tokens.colorNeutralForegroundOnBrand,
      backgroundColor: tokens.colorStatusDangerBackground3,
    },
  },
});

/** The size for which Fluent UI lays out the icons of the navigation. Without it, they are as small as their text. */
const ICON_PX = 20;

/** Larger counts are shown as "99+". The link's description has the whole number. */
const MAX_SHOWN_COUNT = 99;

/**
 * The navigation of the page: links to the views that the user's role can open, in groups, with the number of things that need
 * attention. A view that needs a license says so when it is opened. On a narrow screen, the navigation covers the view until
 * `close` is called.
 */
export function Navigation(props: { isNarrow: boolean; isOpen: boolean; close(): void }) {
  const roleAllows = useRoleAllows();
  const attention = useAttention();
  return <NavigationOf {...props} isAllowed={roleAllows} attention={attention} />;
}

/**
 * The navigation with the views whose operation is allowed.
 *
 * @param props.attention - The numbers of things that need attention, by path.
 */
export function NavigationOf({
  isNarrow,
  isOpen,
  close,
  isAllowed,
  attention,
}: {
  isNarrow: boolean;
  isOpen: boolean;
  close(): void;
  isAllowed(operation: Operation): boolean;
  attention: Partial<Record<string, Attention>>;
}) {
  const itemStyles = useItemStyles();
  const { pathname } = useLocation();
  const allowedViews = VIEWS.filter(({ title, needs }) => title !== undefined && isAllowed(needs));
  return (
    <NavDrawer
      className={useStyles().navigation}
      type={isNarrow ? "overlay" : "inline"}
      open={isOpen}
      onOpenChange={(_, { open }) => open || close()}
      selectedValue={viewOf(pathname)?.title ?? ""}
      // All views fit into a window of 900 pixels.
      density="small"
      aria-label="Views"
    >
      <NavDrawerBody>
        {GROUPS.map((name) => {
          const views = allowedViews.filter(({ group }) => group === name);
          if (views.length === 0) return null;
          return (
            <Fragment key={name}>
              <NavSectionHeader>{name}</NavSectionHeader>
              {views.map(({ path, title, icon: Icon }) => {
                const needed = attention[path];
                const count = needed && {
                  className: itemStyles.counted,
                  "data-count": `${needed.count > MAX_SHOWN_COUNT ? `${MAX_SHOWN_COUNT}+` : needed.count} ${needed.unit}`,
                  title: needed.text,
                };
                return (
                  <NavItem
                    key={path}
                    value={title!}
                    as="a"
                    href={createHref(path)}
                    onClick={close}
                    {...(Icon && { icon: <Icon fontSize={ICON_PX} /> })}
                    {...count}
                  >
                    {title}
                  </NavItem>
                );
              })}
            </Fragment>
          );
        })}
      </NavDrawerBody>
    </NavDrawer>
  );
}

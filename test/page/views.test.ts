/** What the page shows, in one browser beside one service (opened.ts). Each file has the tests of a subject, and none changes what others look at. */
import "./views.ts";
import "./filters.ts";
import "./sessions.ts";
import "./roles.ts";
import "./names.ts";
import "./other-sites.ts";

-- Run by Quarto when the pages are written: takes out what they load from other hosts without using it.
-- Brings the live figures and their tables along, which nbdev leaves behind.
-- Quarto adds require.js and jQuery to every page with a table made by pandas, and a polyfill for browsers of 2015 to every formula.
-- Quarto marks one entry of the menu on every page, the first that the sidebar knows: here it is the page itself, if any.
local needless = {
  '<script src="https://[^"]*/requirejs@[^>]*></script>\n?', '<script src="https://[^"]*/jquery@[^>]*></script>\n?',
  '<script type="application/javascript">define%(\'jquery\'[^<]*</script>\n?', '%s*<script src="https://[^"]*/polyfill[^>]*></script>',
}
local out = os.getenv("QUARTO_PROJECT_OUTPUT_DIR")
local folder = out:match("[^/\\]+$") -- of the site
local function offset_of(page) return page:match('<meta name="quarto:offset" content="([^"]*)"') or "./" end

local function mark_this(page, name)
  page = page:gsub('(<a class="nav%-link) active(" href="[^"]*") aria%-current="page"', "%1%2")
  local href = '" href="' .. offset_of(page) .. name .. '"'
  local plain, marked = '<a class="nav-link' .. href, '<a class="nav-link active' .. href .. ' aria-current="page"'
  local from, to = page:find(plain, 1, true)
  return from and page:sub(1, from - 1) .. marked .. page:sub(to + 1) or page
end

-- pandas writes the name of an index into a header row of its own: where each column is named in one of two rows, one row is enough.
local function one_header_row(head)
  local rows = {}
  for row in head:gmatch("<tr.-</tr>") do
    local cells = {}
    for cell in row:gmatch("<th.-</th>") do cells[#cells + 1] = cell end
    rows[#rows + 1] = cells
  end
  if #rows ~= 2 or #rows[1] ~= #rows[2] then return end
  local function empty(cell) return cell:match("^<th[^>]*>%s*</th>$") end
  for k, cell in ipairs(rows[1]) do
    if not empty(cell) and not empty(rows[2][k]) then return end
    if empty(cell) then rows[1][k] = rows[2][k] end
  end
  return '<thead>\n<tr class="header">\n' .. table.concat(rows[1], "\n") .. "\n</tr>\n</thead>"
end

local settings = assert(io.open("../settings.ini", "rb")):read("a")
local published, base = settings:match("\npublished *= *(%w+)") == "True", "/" .. settings:match("\nrepo *= *([^\r\n]+)") .. "/"
local facts = {version = settings:match("\nversion *= *([^\r\n]+)"), date = os.date("%d %B %Y"):gsub("^0", "")} -- for the footer

-- Quarto writes the same long scripts at the beginning and at the end of every page: one file of each serves them all.
local function shared_script(page, id)
  local tag = '<script id="' .. id:gsub("%-", "%%-") .. '" type="application/javascript">(.-)</script>'
  return page:gsub(tag, function(body)
    local name = "site_libs/page-" .. pandoc.utils.sha1(body):sub(1, 8) .. ".js"
    local file = assert(io.open(out .. "/" .. name, "wb"))
    file:write(body)
    file:close()
    return '<script src="' .. offset_of(page) .. name .. '"></script>'
  end)
end

-- So does one file of the styles that pandoc writes into every page.
local function shared_style(page)
  return (page:gsub("<style>(\n/%* Default styles provided by pandoc.-)</style>", function(body)
    local name = "site_libs/page-" .. pandoc.utils.sha1(body):sub(1, 8) .. ".css"
    local file = assert(io.open(out .. "/" .. name, "wb"))
    file:write(body)
    file:close()
    return '<link rel="stylesheet" href="' .. offset_of(page) .. name .. '">'
  end))
end

-- In code, words of the language, numbers, texts and remarks are coloured, no signs and no names, and lines share one box; other lines are not indented.
local function lighter(page)
  local kept = {}
  for _, sort in ipairs {"op", "bu", "va"} do page = page:gsub('<span class="' .. sort .. '">([^<]*)</span>', "%1") end
  page = page:gsub('(<h[23] class="documented[^>]*>)([^<]*)', function(tag, name) return tag .. (name:gsub("([._])(%w)", "%1<wbr>%2")) end) -- a long name breaks there
  page = page:gsub(' data%-quarto%-table%-cell%-role="th"', ""):gsub('<nav id="quarto%-sidebar".-</nav>', function(menu)
    return (menu:gsub(">%s+<", "><"):gsub('<div class="sidebar%-item%-container">(<a href=[^>]*><span class="menu%-text">[^<]*</span></a>)</div>', function(link)
      if not link:find(" active", 1, true) then return link end -- the open page keeps the box that colours it
    end))
  end)
  page = page:gsub("<pre.-</pre>", function(code)
    kept[#kept + 1] = code:gsub("</span>\n<span>", "\n")
    return "<pre>" .. #kept .. "</pre>"
  end)
  return (page:gsub("\n%s+<", "\n<"):gsub("<pre>(%d+)</pre>", function(k) return kept[tonumber(k)] end))
end

-- A picture says in a chunk of text where its panels are (tools/panels.py): the page says it, too, for live/panels.js.
local function with_places(page, folder_of_page)
  return (page:gsub('<img src="([^":]+%.png)"', function(name)
    local file = io.open(folder_of_page .. name, "rb")
    local png = file and file:read("a") or ""
    if file then file:close() end
    local at = png:find("tEXtpanels\0", 1, true)
    if not at then return end
    local length = string.unpack(">I4", png, at - 4)
    local text = png:sub(at + 11, at + 3 + length)
    if text:find('"pieces":[]', 1, true) then return end
    return '<img src="' .. name .. '" data-panels="' .. text:gsub('"', "&quot;") .. '"'
  end))
end

for path in os.getenv("QUARTO_PROJECT_OUTPUT_FILES"):gmatch("[^\r\n]+") do
  if path:match("%.html$") then
    local file = assert(io.open(path, "rb"))
    local page = file:read("a")
    file:close()
    for _, pattern in ipairs(needless) do page = page:gsub(pattern, "") end
    page = page:gsub("<thead>(.-)</thead>", one_header_row)
    page = shared_style(shared_script(shared_script(page, "quarto-html-before-body"), "quarto-html-after-body"))
    page = page:gsub('src="live/load%.js"', 'src="' .. offset_of(page) .. 'live/load.js"')
    page = page:gsub("<th[^>]*>%s*</th>", "<td></td>") -- the corner of a table heads nothing
    page = page:gsub('<a href="#cb%d+%-%d+" aria%-hidden="true" tabindex="%-1"></a>', ""):gsub('<span id="cb%d+%-%d+">', "<span>") -- of a line of code, which nobody links to
    page = with_places(page, path:match(".*/"))
    page = lighter(mark_this(page, ("/" .. path):match(".*/" .. folder:gsub("%p", "%%%0") .. "/(.+)$") or path))
    if not published and path:match("404%.html$") then page = page:gsub('(["(])' .. base, "%1./") end -- a copy of the site has no address yet
    page = page:gsub("{(version)}, {(date)}", function(a, b) return facts[a] .. ", " .. facts[b] end)
    file = assert(io.open(path, "wb"))
    file:write(page)
    file:close()
  end
end

local function bring(folder, wanted)
  local from, to = "../nbs/" .. folder .. "/", out .. "/" .. folder .. "/"
  pandoc.system.make_directory(to, true)
  for _, name in ipairs(pandoc.system.list_directory(from)) do
    if wanted == nil or wanted[name] then
      local source, target = assert(io.open(from .. name, "rb")), assert(io.open(to .. name, "wb"))
      target:write(source:read("a"))
      source:close()
      target:close()
    end
  end
end
bring("live")
bring("images", {["favicon.svg"] = true, ["limit.png"] = true})
bring("data", {["kernel.json"] = true, ["map.json"] = true, ["theorem.json"] = true, ["finite.json"] = true, ["judge.json"] = true})
